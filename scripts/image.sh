#!/usr/bin/env bash
# The image of deploy/Dockerfile without an engine: an OCI layout, by mmdebstrap, pip and umoci.
#
#     scripts/image.sh [FOLDER]      default: dist/image
#
# Root on Debian or Ubuntu, with `apt-get install mmdebstrap umoci`. Afterwards
# `skopeo copy oci:dist/image:VERSION docker://…` brings it into a registry. Packages, user, variables and command
# are those of the Dockerfile, which is read here; of this repository the image has what .dockerignore lets in.
set -euo pipefail
umask 022  # the image's user reads what root makes
cd "$(dirname "$0")/.."

image=$(realpath -m "${1:-dist/image}")
version=$(sed -n 's/^version = "\([^"]*\)".*/\1/p' pyproject.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
instruction() { sed -n "s/^$1//p" deploy/Dockerfile | tr -d '"'; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/msgplatform"
mapfile -t product < <(sed -n 's/^!//p' .dockerignore)
{ git ls-files -z -- "${product[@]}"; find clients/dist site -type f -print0 2>/dev/null || true; } |
  tar --null --files-from=- --create | tar --extract --directory "$work/msgplatform"

# A proxy of this network may have a certificate of its own.
[[ -z ${PIP_CERT:-} ]] || cp "$PIP_CERT" "$work/.pip-cert"
cat >"$work/install" <<SCRIPT
set -eu
export DEBIAN_FRONTEND=noninteractive ${PIP_CERT:+PIP_CERT=/opt/.pip-cert}
apt-get install -qq --no-install-recommends $(instruction 'ARG BUILD_PACKAGES=') >/dev/null
sh /opt/msgplatform/deploy/image/install /opt/msgplatform/requirements.txt
# Suggested by others, these would stay.
apt-get purge -qq --auto-remove -o APT::AutoRemove::SuggestsImportant=false \\
  -o APT::AutoRemove::RecommendsImportant=false $(instruction 'ARG BUILD_PACKAGES=') >/dev/null
useradd --uid 10001 --create-home --home-dir /data msgplatform
rm -rf /usr/share/perl /usr/lib/*/perl
cd /opt/msgplatform
chmod u=rwx,go=rx . && chmod -R u=rwX,go=rX -- *
.venv/bin/python -m compileall -q --invalidation-mode unchecked-hash */
rm -f /opt/install /opt/.pip-cert
SCRIPT
umoci init --layout "$image"
umoci new --image "$image:$version"
umoci unpack --image "$image:$version" "$work/bundle"
packages=$(instruction 'ARG PACKAGES=')
mmdebstrap --quiet --mode=root --variant=apt --include="${packages// /,}" --dpkgopt=deploy/image/dpkg.cfg \
  --customize-hook="copy-in $work/msgplatform $work/install ${PIP_CERT:+$work/.pip-cert} /opt" \
  --customize-hook='chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh /opt/install' \
  bookworm "$work/bundle/rootfs"
umoci repack --refresh-bundle --image "$image:$version" "$work/bundle"
config=()
for variable in $(instruction 'ENV '); do config+=(--config.env="$variable"); done
umoci config --image "$image:$version" --created="$created" --config.user="$(instruction 'USER ')" \
  --config.workingdir=/opt/msgplatform --config.volume=/data "${config[@]}" \
  --config.cmd=python --config.cmd=manage.py --config.cmd=help
umoci gc --layout "$image"
du -sm "$image" "$work/bundle/rootfs" | awk '{print "image: " $1 " MB" (NR == 1 ? " compressed" : " unpacked")}' >&2
