# Shared by quickstart and test: a Python, a virtual environment with the pinned packages, and bubblewrap.

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

as_root() {  # run a command as root if that is possible without asking for a password
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"; else return 126; fi
}

apt_install() {
  command -v apt-get >/dev/null || return 127
  as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

need_python() {
  for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      PYTHON=$candidate
      return
    fi
  done
  apt_install python3 python3-venv && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && { PYTHON=python3; return; }
  die "Python 3.11 or newer with venv is needed. Debian and Ubuntu: sudo apt-get install python3 python3-venv"
}

need_bubblewrap() {
  command -v bwrap >/dev/null && return
  say "bubblewrap is missing; installing it with apt"
  apt_install bubblewrap && command -v bwrap >/dev/null && return
  die "bubblewrap is missing and could not be installed here. Debian and Ubuntu: sudo apt-get install bubblewrap
Commands of the agent run in a sandbox, and nothing runs without one. \`sanderling doctor\` says more."
}

need_packages() {  # need_packages EXTRAS: install once per set of pins
  local extras=$1 stamp pins
  [ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
  pins=$(cat pyproject.toml constraints.txt | cksum)
  stamp=.venv/.installed-$extras
  if [ "$(cat "$stamp" 2>/dev/null)" != "$pins" ]; then
    say "installing the pinned packages into .venv (once; some minutes, most of it is torch)"
    .venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[$extras]" || die "pip failed; see above"
    printf '%s' "$pins" >"$stamp"
  fi
}
