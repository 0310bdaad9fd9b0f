# Two commands are all that a newcomer needs: `make demo` and `make test`.

# The profile of the gateway that the verifications run; `make verify-outage PROFILE=release` for numbers to quote.
PROFILE ?= dev
CARGO_VERIFY = TIDEGATE_SCALE=full cargo test --locked --profile $(PROFILE) --test it

.PHONY: help demo test build plugins kafka lint fmt bench verify verify-snapshot verify-crashes verify-scale-out verify-outage \
	verify-hostile verify-lanes torture deny clean-kafka

help:
	@echo 'make demo      the whole thing in one process on an embedded broker; Ctrl-C ends it'
	@echo 'make test      every test, on a real broker that it starts itself; formatting and clippy'
	@echo 'make build     the gateway, for use: target/release/tidegate'
	@echo 'make plugins   the plugins: plugins/target/wasm32-wasip2/release/*.wasm'
	@echo 'make lint      formatting and clippy alone;  make fmt  formats'
	@echo 'make deny      licences, sources and versions of what is depended on'
	@echo 'make bench     records a second and CPU a record, next to a consumer that does nothing'
	@echo 'make verify    the full-size proofs, an hour or two; each alone: verify-snapshot, verify-crashes,'
	@echo '               verify-scale-out, verify-outage, verify-hostile, verify-lanes'
	@echo 'make torture   everything that can break, in random order, for ten minutes; SEED= and SECONDS= change that'
	@echo 'make kafka     fetches the broker of the tests to the cache;  make clean-kafka  removes it'

# The demo and the tests share one profile, so that a fresh clone compiles its dependencies once.
demo: plugins
	cargo build --locked
	@target/debug/tidegate demo

test:
	@scripts/test.sh

build: plugins
	cargo build --locked --release

plugins:
	@scripts/packages.sh build
	cd plugins && cargo build --locked --release --target wasm32-wasip2

kafka:
	@scripts/packages.sh test
	@scripts/kafka-jars.sh

lint:
	@scripts/lint.sh

fmt:
	cargo fmt
	cd plugins && cargo fmt

# With `cargo install --locked cargo-deny`. Advisories are left to whoever has the network: `cargo deny check advisories`.
deny:
	cargo deny check --hide-inclusion-graph licenses bans sources
	cd plugins && cargo deny --config ../deny.toml check --hide-inclusion-graph --allow license-not-encountered licenses bans sources

bench: plugins kafka
	cargo bench --locked --bench throughput

# The proofs at the sizes that the README quotes. TIDEGATE_SEED, TIDEGATE_RECORDS, TIDEGATE_KEYS, TIDEGATE_KILLS,
# TIDEGATE_BACKLOG_MB, TIDEGATE_OUTAGE_SECONDS, TIDEGATE_TRAPS and TIDEGATE_LANES change them.
verify: verify-snapshot verify-crashes verify-scale-out verify-outage verify-hostile verify-lanes

verify-snapshot: plugins kafka
	$(CARGO_VERIFY) -- --nocapture --test-threads=1 snapshot::

verify-crashes: plugins kafka
	$(CARGO_VERIFY) -- --nocapture --test-threads=1 crashes::

verify-scale-out: plugins kafka
	$(CARGO_VERIFY) -- --nocapture --test-threads=1 scale_out::

verify-outage: plugins kafka
	$(CARGO_VERIFY) -- --nocapture --test-threads=1 outage::

# `make torture SEED=n SECONDS=n`: every kind of fault at least five times, until the time is over; a failing seed replays.
torture: plugins kafka
	$(if $(SEED),TIDEGATE_SEED=$(SEED)) $(if $(SECONDS),TIDEGATE_TORTURE_SECONDS=$(SECONDS)) $(CARGO_VERIFY) -- --nocapture --test-threads=1 torture::

verify-hostile: plugins kafka
	$(CARGO_VERIFY) -- --nocapture --test-threads=1 hostile::

verify-lanes: plugins kafka
	$(CARGO_VERIFY) -- --nocapture --test-threads=1 lanes::

clean-kafka:
	rm -rf "$$(scripts/kafka-jars.sh --where)"
