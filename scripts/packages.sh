#!/usr/bin/env bash
# What tests and benchmarks need from the system. As root on Debian or Ubuntu: install what is
# missing. Otherwise: say the line that installs it, and fail.
# Usage: packages.sh [python [scale|full]]; these add what only `make test-scale` or `make test-full`
# needs.
set -euo pipefail

python=${1:-python3}
PATH=$PATH:/usr/sbin:/usr/local/sbin
missing=()

have() { command -v "$1" >/dev/null; }
need() { missing+=("$1"); }

have mariadbd || need mariadb-server
have redis-server || need redis-server
have node || need nodejs
have npm || need npm
{ have java && have javac; } || need default-jdk-headless
[[ -e /usr/share/java/jakarta-annotation-api.jar ]] || need libjakarta-annotation-api-java
have go || need golang-go
have php || need php-cli
have chromium || have chromium-browser || need chromium
have msgfmt || need gettext
have nginx || need nginx-light
have promtool || need prometheus
have gcc || have cc || need gcc
have pkg-config || need pkg-config
{ have pkg-config && pkg-config --exists libmariadb; } || need libmariadb-dev
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[[ -e $headers/Python.h ]] || need python3-dev

have haproxy || need haproxy
compgen -G "/usr/lib*/galera/libgalera_smm.so" >/dev/null || need galera-4
for program in rsync lsof; do  # a node of Galera copies the data of another one with them
  have "$program" || need "$program"
done

if [[ ${2:-} == scale ]]; then
  have keepalived || need keepalived
  have curl || need curl
  have ip || need iproute2
  have sysctl || need procps
fi
if [[ ${2:-} == full ]]; then  # bare systems and the image
  for program in mmdebstrap umoci; do
    have "$program" || need "$program"
  done
fi

[[ ${#missing[@]} -gt 0 ]] || exit 0
line="apt-get install --no-install-recommends ${missing[*]}"
if [[ $(id -u) != 0 ]] || ! have apt-get; then
  echo "Tests need packages that are not installed. This installs them: sudo $line" >&2
  exit 1
fi

# The tests start servers of their own: those of the packages must not be started. Debian's
# invoke-rc.d asks this file; one that is there already is the administrator's.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi
echo "packages: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -q update >&2
apt-get -q -y install --no-install-recommends "${missing[@]}" >&2
