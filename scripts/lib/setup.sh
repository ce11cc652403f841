# What the scripts share: packages and the Swift toolchain. Sourced, never run.

# The C libraries that the product is built with, and the servers that its tests and its demo run.
BUILD_PACKAGES=(
  pkg-config git libdbus-1-dev libmosquitto-dev libyaml-dev libjansson-dev libsqlite3-dev libpcre2-dev libssl-dev
)
SERVER_PACKAGES=(dbus mosquitto mosquitto-clients)
# What only tests need: systemd-analyze reads the unit in Packaging/.
TEST_PACKAGES=(python3 systemd)
# The Swift runtime links against it, but Debian's swiftlang does not depend on it.
[ "$(. /etc/os-release && echo "${VERSION_ID:-}")" != 13 ] || BUILD_PACKAGES+=(libstdc++-14-dev)

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 69
}

# Runs a command as root: directly, or by sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "This needs root, and sudo is not here. As root, run: $*"
  fi
}

# Installs those of the named Debian packages that are missing, and says so.
install_packages() {
  command -v dpkg-query >/dev/null || fail "This is not Debian: install what these Debian packages hold: $*"
  local package missing=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "Installing from Debian: ${missing[*]}"
  as_root apt-get update -qq >&2
  # A freshly installed broker must not start as a service of its own accord.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
    fail "apt-get could not install: ${missing[*]}"
}

# Finds Swift 6.0 or newer, or says how to get it.
require_swift() {
  local version
  if ! command -v swift >/dev/null && [ "$(. /etc/os-release && echo "${VERSION_ID:-}")" = 13 ]; then
    say "Swift is missing; Debian 13 has it in the package swiftlang."
    install_packages swiftlang
  fi
  command -v swift >/dev/null || fail "Swift is missing. Debian 13: apt-get install swiftlang. \
Debian 12: unpack Swift 6 for Debian 12 from swift.org/install and put its usr/bin on PATH."
  version=$(swift --version 2>/dev/null | sed -n 's/.*Swift version \([0-9]*\.[0-9]*\).*/\1/p' | head -n 1)
  case $version in
    6.* | [7-9].*) ;;
    *) fail "Swift ${version:-of an unknown version} is too old: 6.0 or newer is needed." ;;
  esac
}

# What tests makes warnings errors. Other flags would build everything again, so the scripts that it calls inherit this.
STRICT=()
[ -z "${BLUEFERRY_STRICT:-}" ] || STRICT=(-Xswiftc -warnings-as-errors)

# Builds a program as it is shipped: optimised, with the Swift runtime inside. Prints the binary's path.
build_product() {
  swift build -c release --static-swift-stdlib --product "$1" ${STRICT[@]+"${STRICT[@]}"} >&2 || exit 70
  printf '%s/%s\n' "$(swift build -c release --static-swift-stdlib --show-bin-path)" "$1"
}

# The program itself, unless BLUEFERRY_BINARY names one.
build_release() {
  if [ -n "${BLUEFERRY_BINARY:-}" ]; then printf '%s\n' "$BLUEFERRY_BINARY"; else build_product blueferry; fi
}
