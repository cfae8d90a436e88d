# The gateway in a container: a wheel built here, on dependencies pinned by hash. What runs has no build tools, no pip
# and no rights.

ARG PYTHON=3.13-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/holeshot
# with litellm: what the image serves is configured later
COPY tools/requirements/litellm.lock tools/requirements/
RUN /opt/holeshot/bin/pip install --require-hashes -r tools/requirements/litellm.lock
COPY pyproject.toml README.md LICENSE ./
COPY holeshot holeshot
COPY gateway gateway
COPY providers providers
COPY migrations migrations
COPY config/gateway.example.yaml config/
# without isolation: what builds the wheel is pinned by the same lock, and is removed once it has
RUN /opt/holeshot/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && /opt/holeshot/bin/pip install --no-deps --no-index dist/*.whl \
 && /opt/holeshot/bin/pip uninstall --yes editables hatch-fancy-pypi-readme hatchling pathspec pluggy tomlkit trove-classifiers pip

FROM python:${PYTHON}
RUN python -m pip uninstall --yes --root-user-action ignore pip \
 && useradd --system --uid 10001 --user-group --home-dir /var/lib/holeshot --create-home holeshot \
 && install --directory --owner 10001 --group 10001 /etc/holeshot/secrets
COPY --from=build /opt/holeshot /opt/holeshot
COPY config/container /opt/holeshot/container
# A variable overrides the configuration file: to use another port set HOLESHOT_PORT, and the health check follows.
ENV PATH=/opt/holeshot/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOLESHOT_PORT=4000
USER 10001:10001
WORKDIR /var/lib/holeshot
VOLUME /var/lib/holeshot
EXPOSE 4000
# ready as long as new calls are welcome; a database that is away does not make it unready
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s CMD ["python", "-I", "/opt/holeshot/container/health.py"]
# on SIGTERM, calls are answered for lame_duck_s, then may end within shutdown_grace_s: `docker stop -t 45`
ENTRYPOINT ["holeshot"]
CMD ["serve"]
