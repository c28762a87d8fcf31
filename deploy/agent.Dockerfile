# The agent: one container beside each Cassandra node, as Cassandra's user, on the node's own cdc_raw.
#   docker build -f deploy/agent.Dockerfile -t tailrace-agent .
# Pin the base by digest with --build-arg BASE=python:3.11.14-slim-bookworm@sha256:...
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
# The decoder is compiled here. A failure ends the build: the image never has the slower pure Python.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
RUN python -m venv /opt/tailrace
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY tools/build_backend.py tools/compilation.py tools/mypyc.toml tools/
COPY schemas schemas
COPY common common
COPY connector connector
COPY spark spark
RUN TAILRACE_COMPILE=1 /opt/tailrace/bin/pip install --no-cache-dir --disable-pip-version-check '.[registry]'

FROM ${BASE}
# The ids of the `cassandra` user in Cassandra's official image: the agent deletes segments that this user wrote.
ARG UID=999
ARG GID=999
RUN groupadd --system --gid ${GID} tailrace \
    && useradd --system --uid ${UID} --gid ${GID} --home-dir /var/lib/tailrace --create-home tailrace
COPY --from=build /opt/tailrace /opt/tailrace
ENV PATH=/opt/tailrace/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TAILRACE_LOG_FORMAT=json
USER tailrace
WORKDIR /var/lib/tailrace
STOPSIGNAL SIGTERM
ENTRYPOINT ["tailrace"]
CMD ["agent", "-c", "/etc/tailrace/tailrace.toml"]
