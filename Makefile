# Every target is one script of hack/, which says what it does and what it takes.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: boxhost-image blade-image box-up box-down test-box rack-up rack-down scale help up down test store local kubectl-rcbox python client-c bench lint generate faults test-sriov simulate soak fuzz images e2e clean dist

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: ## from a bare machine to a Store under load, on a local kind cluster
	@hack/up.sh

down: ## remove what `make up` made
	@hack/down.sh

box-up: ## from bare chassis to a store, all of it emulated, in a cluster of its own
	@hack/box-up.sh up

box-down: ## remove what `make box-up` made
	@hack/box-up.sh down

test-box: ## the long tests of the Box: blades pulled while clients use a store on them
	@hack/test-box.sh

rack-up: ## after `make up`: three emulated chassis of 44 servers in that cluster
	@hack/rack.sh up

rack-down: ## remove what `make rack-up` made
	@hack/rack.sh down

test: ## all tests: lint, unit, property, faults, simulated, fuzz, end to end
	@hack/test.sh $(STAGES)

store: ## build the store's programs into images/store/target/release
	@hack/store.sh

local: store ## a store on loopback, as plain processes: no root, no Kubernetes
	@hack/local.sh

kubectl-rcbox: ## build the kubectl plugin into .build/bin
	@hack/kubectl-rcbox.sh

python: ## build the Python package of the client: a wheel in .build/python
	@hack/python.sh --wheel .build/python

client-c: ## build the client for C: header, library and examples in .build/client-c
	@hack/client-c.sh

bench: store ## measure the store: beside Redis and memcached, durable writes, recovery
	@hack/bench.sh

lint: ## all linters
	@hack/lint.sh

generate: ## generate CRDs, RBAC, deep copies and the admin API's Go code
	@hack/generate.sh

scale: ## the operator with 782 simulated nodes, 736 members and a real control plane
	@hack/scale.sh

faults: ## real processes that are killed, stopped, cut off; one: hack/faults.sh -run NAME
	@hack/faults.sh

test-sriov: ## the store over virtual functions of an emulated NIC, in a virtual machine
	@hack/test-sriov.sh

simulate: ## one seed of the simulator, with its trace: make simulate SEED=17
	@hack/simulate.sh --seed $(or $(SEED),0) --trace

soak: ## simulator on new seeds for an hour: make soak SEEDS=20000..30000 MINUTES=10 FUZZ_MINUTES=1
	@hack/soak.sh

fuzz: ## every fuzz target for a minute
	@images/store/fuzz/run.sh $(or $(RCBOX_FUZZ_SECONDS),60)

dist: ## what a release has beside its images: install.yaml, chart, bills of materials
	@hack/dist.sh

boxhost-image: ## build the image of box hosts, and print its name
	@hack/boxhost-image.sh

blade-image: ## build what servers boot from the network, and print its folder
	@hack/blade-image.sh

images: ## build the images rcbox/store and rcbox/operator
	@hack/build-images.sh

e2e: ## end-to-end tests on a kind cluster of their own (KEEP=1 keeps it)
	@hack/e2e.sh

clean: ## delete what the build made in this checkout (caches stay)
	@rm -rf .build images/store/target images/store/fuzz/target
