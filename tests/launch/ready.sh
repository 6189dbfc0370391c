# CLONE: what `run` does before it starts a run on the node `one`; for tpu_vm_test.py.
. "$1/launch/tpu_vm.sh"
HOURS=1
ready one
