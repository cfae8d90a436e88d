# The gateway in a container: a wheel built here, on dependencies pinned by hash, run by a user without rights.

FROM python:3.13-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/holeshot
COPY requirements/runtime.lock requirements/
RUN /opt/holeshot/bin/pip install --require-hashes -r requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY providers providers
COPY migrations migrations
# without isolation: what builds the wheel is pinned by the same lock
RUN /opt/holeshot/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && /opt/holeshot/bin/pip install --no-deps --no-index dist/*.whl

FROM python:3.13-slim
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/holeshot --create-home holeshot \
 && mkdir /etc/holeshot
COPY --from=build /opt/holeshot /opt/holeshot
ENV PATH=/opt/holeshot/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/holeshot
VOLUME /var/lib/holeshot
EXPOSE 4000
# ready as long as new calls are welcome; a database that is away does not make it unready
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s \
  CMD ["python", "-I", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:4000/health/ready', timeout=4)"]
# on SIGTERM, calls are answered for lame_duck_s, then may end within shutdown_grace_s: `docker stop -t 45`
ENTRYPOINT ["holeshot"]
CMD ["serve"]
