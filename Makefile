# Everything a developer or continuous integration runs, by one word each.
.PHONY: help setup demo build install uninstall man test test-long interleavings gate bench bench-fuse \
	dist dist-test deny publish-check semver book clean
.DEFAULT_GOAL := help

CARGO ?= cargo

help:
	@echo 'make demo       an image of real files of this machine: built, listed, read back, judged by e2fsck'
	@echo 'make man        manual pages of all commands, and examples of systemd units, into target/man'
	@echo 'make test       everything that continuous integration runs'
	@echo 'make test-long  the same tests with many more random cases, optimised'
	@echo 'make gate       the experiments of the lab, quickly, held against their gates'
	@echo 'make bench      the benchmarks'
	@echo 'make bench-fuse  mounts compared with the kernel, fuse2fs and libfuse, and the targets (root; half an hour)'
	@echo 'make install    installs the command, pages, completions, units (PREFIX=/usr/local, DESTDIR)'
	@echo 'make uninstall  removes them'
	@echo 'make dist       static binaries, .deb, .rpm, a container image layout, checksums: target/dist'
	@echo 'make dist-test  installs them in clean roots and runs them there (root)'
	@echo 'make book       the guide as HTML: target/book'
	@echo 'make deny       licences, advisories and duplicates of all dependencies (cargo-deny)'
	@echo 'make publish-check  packs every crate as for the registry, and publishes nothing'
	@echo 'make semver     what changed in the public interfaces since BASE (cargo-semver-checks)'
	@echo 'make setup      installs the tools that tests and demo use (apt, when root), or says what is missing'

setup:
	@scripts/setup

demo: setup build
	@UEXT4="$$($(CARGO) metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/uext4" scripts/demo

build:
	$(CARGO) build --locked --release --package uext4-cli

# What cargo has built, wherever that is. `make install` builds nothing: it may run as root.
TARGET_DIR = $$($(CARGO) metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
BINARY ?= $(TARGET_DIR)/release/uext4
export PREFIX DESTDIR SBINDIR

install:
	@binary="$(BINARY)"; test -x "$$binary" || { echo "install: no $$binary: run make build first" >&2; exit 1; }; \
		BINARY="$$binary" scripts/install-files

uninstall:
	@scripts/uninstall-files

dist:
	@scripts/dist

dist-test:
	@scripts/dist-test

book:
	@$(CARGO) run --locked --quiet --package xtask -- book "$(TARGET_DIR)/book"

deny:
	$(CARGO) deny --locked check

# With tests/ and benches/ left out of what is packed, each crate is built from its own package.
publish-check:
	$(CARGO) publish --locked --dry-run --workspace --allow-dirty

BASE ?= HEAD~1
semver:
	$(CARGO) semver-checks --workspace --baseline-rev $(BASE)

man:
	$(CARGO) run --locked --quiet --package uext4-cli -- man target/man

# Images of registries, without TLS: that takes longer to build than all else of it.
FEATURES = --features uext4-image/registry-http

# Everything has documentation but the command, whose name is that of the engine's library. With the examples,
# dependencies are of the same features as in tests, and what the lints have checked need not be checked anew.
test:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets $(FEATURES) -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps $(FEATURES) \
		--lib --bin xtask --bin uext4-lab --examples
	$(CARGO) test --locked --workspace $(FEATURES)
	$(MAKE) --no-print-directory interleavings

# Not linked as one whole: that takes longer to build than it saves.
test-long:
	PROPTEST_CASES=20000 UEXT4_LONG=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
		$(CARGO) test --locked --workspace $(FEATURES) --release --no-fail-fast
	UEXT4_LONG=1 $(MAKE) --no-print-directory interleavings

# Threads in many orders, as a model checker chooses them. Of the whole workspace, so that what the tests have
# built is of the same features and need not be built anew; those of uext4-writeback are among the tests.
interleavings:
	$(CARGO) test --locked --workspace --exclude uext4-writeback --test interleavings $(FEATURES) \
		--features uext4-jbd2/shuttle,uext4-extent-status/shuttle,uext4-mbcache/shuttle,uext4-lab-interleavings/shuttle,uext4-testkit/shuttle

# One line a gate; fails if any falls short.
gate:
	$(CARGO) run --locked --release --quiet --package uext4-lab -- gate

bench:
	$(CARGO) bench --locked --workspace

# ARGS names subjects and tasks, and says how often: see crates/cli/benches/mounts/main.rs.
bench-fuse:
	$(CARGO) build --locked --release --package uext4-fuse --examples
	$(CARGO) bench --locked --package uext4-cli --bench mounts -- $(ARGS)

clean:
	$(CARGO) clean
