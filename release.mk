# Releases and the website. Include it last.

VERSION = $(shell sed -n 's/^\#define TC_VERSION "\(.*\)"/\1/p' capi/tensorcache.h)

.PHONY: release try-wheel try-deb image site
release: $(VENV)/.requirements $(CAPI_CC) ## what a release has, of the commit that is checked out, at dist/release (docs/releasing.md)
	PYTHON=$(VENV_PYTHON) ZIG=$(CAPI_ZIG) tools/release $(VERSION) dist/release

# The commands with the CUDA backend, for the glibc of the C library. Packages are compiled as for it, so they are compiled once.
.PHONY: release-commands
release-commands: $(CAPI_CC)
	@$(MAKE) --no-print-directory CC=$(CAPI_CC) CUDA_BUILD=$(CAPI_CUDA) $(CAPI_CUDA)/libcuda.a
	$(CAPI_ENV) $(GO) build -trimpath -tags $(CAPI_TAGS) -buildmode=pie -ldflags='-s -w -buildid= -X $(GPU_COMMIT)' -o $(COMMANDS_AT)/ ./cmd/cachebench ./cmd/tensorcached

# The licences of what a package is linked with, as release-commands links it: for tools/release.
.PHONY: print-licenses
print-licenses:
	@$(CAPI_ENV) capi/licenses.sh $(CAPI_TAGS) $(PACKAGE)

# Of the commands that are there, not compressed: for tests. tools/release makes those that are published.
try-deb: build ## makes a Debian package, and installs, starts, removes and purges it in a copy of this machine's system; as root
	tools/try-deb

IMAGE_TOOL = $(firstword $(shell command -v docker podman buildah))
image: ## the service as an image, by docker, podman or buildah
	@[ -n "$(IMAGE_TOOL)" ] || { echo "image: needs docker, podman or buildah" >&2; exit 1; }
	$(IMAGE_TOOL) build -f deploy/Dockerfile -t tensorcached:$(VERSION) .

try-wheel: wheel ## installs the wheel in an environment that has only NumPy, and prints rows
	tools/try-wheel dist/tensorcache-*$(WHEEL_ARCH).whl

SITE_VENV := build/site-venv
$(SITE_VENV)/.requirements: tools/site/requirements.txt
	$(PYTHON) -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/pip --disable-pip-version-check -q install -r tools/site/requirements.txt
	@cp $< $@

site: build $(SITE_VENV)/.requirements ## the documents as a website, at build/site/site, with an example report
	$(SITE_VENV)/bin/python tools/site/build.py build/site build/cachebench
