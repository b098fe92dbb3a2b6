# Argosy's commands. `make run` and `make test` are all that a newcomer needs; both install what is
# missing first (see scripts/setup.sh).
#
#   make run                     build, and start a cluster on this machine (ARGS='--servers 5' ...)
#   make test                    everything that is checked by tests
#   make simulate SEED=7         one whole cluster from one seed, with a log in words
#   make simulate-many SEEDS=300 many of them, first seed FIRST (default 1)
#   make simulate-named          seeds of profiles: very many segments; steps when due; damaged windows; groups
#   make trial MINUTES=20        a real cluster whose servers are killed, stopped and restarted; all answers are checked
#   make faults                  what each failure costs, on a real cluster each: a table (ARGS='--only primary-killed')
#   make model                   the model of group reconfiguration, and the mistakes planted in it, with TLC
#   make races                   tests of shared memory under ThreadSanitizer
#   make memory                  an hour within a memory budget (MIX=s MIB=64 OPS=1000000)
#   make overwrites              a quarter of an hour of overwrites, and what room they take (MIX=l RECORDS=330000 ...)
#   make mutants                 planted mistakes: a seed that finds each, looked for and recorded
#   make mutants-recorded        the same: that the recorded seeds, or others, find them still
#   make dist                    the fastest program, which takes minutes to link
#   make bench                   build it and measure with it (ARGS='--figure tebis-9 --mix s,sd' ...)
#   make lint                    formatting, clippy, documentation
#   make bench-peers             the bench with RocksDB beside ours, or PEER=fjall,bf-tree (ARGS='--mix s,sd' ...)
#   make test-peers              lints of what bench-peers adds, and tests with RocksDB
#   make test-peer-crates        tests with fjall and Bf-Tree
#   make ci                      what CI runs
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CARGO_TARGET_DIR ?= target
CARGO := cargo
BIN := $(CARGO_TARGET_DIR)/release/argosy
ARGS ?=
SEEDS ?= 300
PEER ?= rocksdb
FIRST ?= 1
MANY ?= 4
MINUTES ?= 20

.PHONY: help run build dist bench test lint doc trial faults model races memory overwrites simulate simulate-many simulate-named mutants mutants-recorded bench-peers test-peers test-peer-crates ci

help:
	@sed -n 's/^#   //p' Makefile

build:
	@scripts/setup.sh rust
	$(CARGO) build --release --locked -p argosy

run: build
	@exec $(BIN) playground $(ARGS)

dist:
	@scripts/setup.sh rust
	$(CARGO) build --profile dist --locked -p argosy

bench: dist
	@exec $(CARGO_TARGET_DIR)/dist/argosy bench $(ARGS)

test:
	@scripts/setup.sh rust test
	$(CARGO) test --workspace --locked --no-fail-fast

lint:
	@scripts/setup.sh rust lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps --document-private-items --locked

doc:
	@scripts/setup.sh rust
	$(CARGO) doc --workspace --no-deps --locked

simulate:
	@test -n "$(SEED)" || { echo 'usage: make simulate SEED=7' >&2; exit 2; }
	@scripts/setup.sh rust
	$(CARGO) run --release --locked -p argosy-sim -- --seed $(SEED) --log

simulate-many:
	@scripts/setup.sh rust
	$(CARGO) run --release --locked -p argosy-sim -- --first $(FIRST) --seeds $(SEEDS)

# Of the twenty seeds with many segments those that take least.
simulate-named:
	@scripts/setup.sh rust
	$(CARGO) run --release --locked -p argosy-sim -- --profile many-segments --first $(MANY) --seeds 2
	$(CARGO) run --release --locked -p argosy-sim -- --profile when-due --seeds 60
	$(CARGO) run --release --locked -p argosy-sim -- --profile damaged-windows --seeds 20
	$(CARGO) run --release --locked -p argosy-sim -- --profile toy --seeds 40
	$(CARGO) run --release --locked -p argosy-sim -- --profile synced --seeds 30
	$(CARGO) run --release --locked -p argosy-sim -- --profile last-flush --seeds 20
	$(CARGO) run --release --locked -p argosy-sim -- --profile failover --seeds 60
	$(CARGO) run --release --locked -p argosy-sim -- --profile partitions --seeds 5

mutants:
	@scripts/setup.sh rust
	@$(CARGO) build --release --locked -p argosy-sim
	@$(CARGO_TARGET_DIR)/release/argosy-sim --record crates/sim/mutants.txt --seeds 1000

mutants-recorded:
	@scripts/setup.sh rust
	@$(CARGO) build --release --locked -p argosy-sim
	@$(CARGO_TARGET_DIR)/release/argosy-sim --recorded crates/sim/mutants.txt

trial: build
	$(CARGO) build --release --locked -p argosy-trial
	@exec $(CARGO_TARGET_DIR)/release/argosy-trial --program $(BIN) --minutes $(MINUTES) --dir $(CARGO_TARGET_DIR)/trial $(ARGS)

faults: build
	$(CARGO) build --release --locked -p argosy-trial
	@exec $(CARGO_TARGET_DIR)/release/argosy-trial faults --program $(BIN) --dir $(CARGO_TARGET_DIR)/faults $(ARGS)

model:
	@scripts/setup.sh model
	@scripts/model.sh

races:
	@scripts/setup.sh rust
	@scripts/races.sh

memory: build
	@exec scripts/memory.sh $(BIN) $(or $(MIX),sd) $(or $(MIB),128) $(or $(OPS),300000000)

overwrites: build
	@exec scripts/overwrites.sh $(BIN) $(or $(MIX),sd) $(or $(RECORDS),3000000) $(or $(OPS),170000000) $(ARGS)

# The only commands that need another store's library; nothing else builds or links one.
bench-peers:
	@scripts/setup.sh rust peers
	$(CARGO) build --profile dist --locked -p argosy --features peers
	@exec $(CARGO_TARGET_DIR)/dist/argosy bench --embedded --peer $(PEER) $(ARGS)

test-peers:
	@scripts/setup.sh rust lint peers
	$(CARGO) clippy -p argosy-peers -p argosy-bench -p argosy --all-targets --locked \
		--features argosy-peers/installed,argosy-peers/crates,argosy/peers -- -D warnings
	$(CARGO) test -p argosy-peers --features installed,crates --locked --lib --test rocksdb
	$(CARGO) test -p argosy --features peers --test end_to_end --locked rocksdb_runs_beside_ours

test-peer-crates:
	@scripts/setup.sh rust lint peers
	$(CARGO) test -p argosy-peers --features installed,crates --locked --test crates
	$(CARGO) test -p argosy --features peers --test end_to_end --locked fjall_runs_beside_ours
	$(CARGO) test -p argosy --features peers --test end_to_end --locked bf_tree_runs_beside_ours

ci:
	@.ci/run
