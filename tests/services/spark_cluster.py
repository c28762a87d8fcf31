"""A Spark standalone cluster on loopback: a master and workers, each a machine of its own as far as one host allows.

Every machine has a directory that nobody else enters, with a Spark, a Python without our packages, and space for its
executors. Where the tests run as root, the machines run as another user, who may read none of the driver's files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from tailrace.local.ports import free_port
from tailrace.local.process import Launch
from tailrace.local.service import LocalService
from tailrace_common.java.find import java_home_for_spark
from tests.support.waiting import until

ADDRESS: Final = "127.0.0.1"
PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The workers' interpreter: the driver's version, as Spark demands, found by each worker on a PATH of its own."""

_ROOT: Final = Path(__file__).parents[2]
_COMPILED: Final = "build/compiled"
_NOBODY: Final = 65534
_SETPRIV: Final = "/usr/bin/setpriv"
_REGISTER_SECONDS: Final = 60.0
_EXECUTOR: Final = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_NOT_OURS: Final = shutil.ignore_patterns("site-packages", "dist-packages", "test", "idlelib", "tkinter", "config-*")


def java_module_options() -> list[str]:
    """The options of Java that Spark starts its processes with, as its launcher prints them.

    On Kubernetes the driver puts them into an executor's variables SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on.
    """
    home, spark = java_home_for_spark(), _spark_directory()
    launcher = ("org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "--class", "any", "any.jar")
    output = subprocess.run(
        [str(home / "bin" / "java"), "-cp", f"{spark}/jars/*", *launcher],
        env={**os.environ, "SPARK_HOME": str(spark), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = output.replace("\n", "\0").split("\0")
    options = [word for word in words if word.startswith(("-XX:", "-D", "--add-", "--enable-"))]
    assert any(option.startswith("--add-opens") for option in options), output
    return options


def _spark_directory() -> Path:
    specification = find_spec("pyspark")
    assert specification is not None
    assert specification.origin is not None
    return Path(specification.origin).parent


class SparkMachine(LocalService):
    """A machine of the cluster: its Spark and Python below `directory`, run by `user` or, for None, by ours."""

    def __init__(self, name: str, directory: Path, user: int | None) -> None:
        super().__init__(name, directory)
        self.port = free_port(ADDRESS)
        self.web_port = free_port(ADDRESS)
        self._user = user

    @property
    def url(self) -> str:
        """Its address, by Spark's scheme."""
        return f"spark://{ADDRESS}:{self.port}"

    def state(self) -> dict[str, Any]:
        """What its web page says in JSON."""
        state: dict[str, Any] = httpx2.get(f"http://{ADDRESS}:{self.web_port}/json/", timeout=60).json()
        return state

    def _launch(self, main: str, arguments: tuple[str, ...], ready_line: str) -> Launch:
        spark, home = self.directory / "spark", java_home_for_spark()
        if not spark.exists():
            self._furnish(spark)
        environ = {
            "PATH": f"{self.directory}/python/bin:/usr/local/bin:/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{self.directory}/python/lib",  # else libpython is another one, of the same name
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",  # which Spark's own scripts would export
            "SPARK_LOCAL_IP": ADDRESS,
            "SPARK_LOCAL_DIRS": str(self.directory / "scratch"),
            "HOME": str(self.directory / "scratch"),
        }
        ports = ("--host", ADDRESS, "--port", str(self.port), "--webui-port", str(self.web_port))
        java = (str(home / "bin" / "java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{spark}/jars/*", main)
        cleared = ("/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environ.items()))
        return Launch(
            name=self.name,
            command=(*as_user(self._user), *cleared, *java, *ports, *arguments),
            directory=self.directory,
            address=ADDRESS,
            port=self.port,
            ready_line=ready_line,
        )

    def _furnish(self, spark: Path) -> None:
        """Put Spark, a bare Python and an empty scratch directory here. Files are links where the disk is the same."""
        installed, base = _spark_directory(), Path(sys.base_prefix)
        for folder in ("jars", "python/lib"):
            shutil.copytree(installed / folder, spark / folder, copy_function=_linked)
        python = self.directory / "python"
        shutil.copytree(base / "lib" / PYTHON, python / "lib" / PYTHON, copy_function=_linked, ignore=_NOT_OURS)
        for shared in (base / "lib").glob("libpython*"):
            _linked(str(shared), str(python / "lib" / shared.name))
        (python / "bin").mkdir()
        _linked(str((base / "bin" / PYTHON).resolve()), str(python / "bin" / PYTHON))
        for folder in ("scratch", "work"):
            (self.directory / folder).mkdir()
        if self._user is not None:
            for path in (self.directory, self.directory / "scratch", self.directory / "work"):
                os.chown(path, self._user, self._user)
        self.directory.chmod(0o700)


class SparkMaster(SparkMachine):
    """The master; `url` is what drivers connect to."""

    def _prepare(self) -> Launch:
        return self._launch("org.apache.spark.deploy.master.Master", (), "New state: ALIVE")


class SparkWorker(SparkMachine):
    """A worker of one core, which offers `memory` (as in 1g) to executors."""

    def __init__(self, name: str, directory: Path, user: int | None, master: str, memory: str) -> None:
        super().__init__(name, directory, user)
        self._arguments = ("--cores", "1", "--memory", memory, "--work-dir", str(self.directory / "work"), master)

    def _prepare(self) -> Launch:
        return self._launch("org.apache.spark.deploy.worker.Worker", self._arguments, "Successfully registered with")

    def executors(self) -> tuple[int, ...]:
        """The process ids of the executors' Java that runs here now."""
        children = Path(f"/proc/{self.pid}/task").glob("*/children")
        pids = [int(pid) for listed in children for pid in listed.read_text().split()]
        return tuple(pid for pid in pids if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes())


class SparkCluster:
    """A master and `workers` of one core and `memory` each, while inside a `with`; its files go with it.

    `user` is the id of the user who runs the machines, None where that is ours: only root may become another.
    """

    def __init__(self, workers: int = 2, memory: str = "1g") -> None:
        # Not pytest's directory, which no other user may enter.
        self.directory = Path(tempfile.mkdtemp(prefix="tailrace-spark-"))
        self.directory.chmod(0o711)
        self.user = _other_user(self.directory)
        self.master = SparkMaster("spark-master", self.directory / "master", self.user)
        self.workers = tuple(
            SparkWorker(f"spark-worker-{number}", self.directory / f"worker-{number}", self.user, self.url, memory)
            for number in range(1, workers + 1)
        )
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The `spark.master` of drivers."""
        return self.master.url

    def alive(self) -> int:
        """How many workers the master counts on."""
        return int(self.master.state()["aliveworkers"])

    def driver_settings(self, archive: Path | None = None) -> dict[str, str]:
        """Spark's settings for a driver here. `archive` (`tailrace stream --archive`) brings executors our code."""
        settings = {
            "spark.master": self.url,
            "spark.driver.host": ADDRESS,
            "spark.driver.bindAddress": ADDRESS,
            "spark.executor.memory": "512m",
            # No task begins before all workers have an executor: else the first one may do all of a small job.
            "spark.cores.max": str(len(self.workers)),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.pyspark.python": PYTHON,
            "spark.pyspark.driver.python": sys.executable,
        }
        if archive is not None:
            settings |= {"spark.archives": f"{archive}#ours", "spark.executorEnv.PYTHONPATH": "ours"}
        return settings

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.directory)
            for machine in (self.master, *self.workers):
                stack.enter_context(machine)
            until(lambda: self.alive() == len(self.workers), f"the workers of {self.url}", _REGISTER_SECONDS)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def compiled_code() -> Path:
    """Our packages compiled, for PYTHONPATH: those of `make test`, made here where the sources are newer."""
    subprocess.run([_ROOT / "tools" / "compile.sh", sys.executable, _COMPILED], cwd=_ROOT, check=True)
    return _ROOT / _COMPILED


def as_user(user: int | None) -> tuple[str, ...]:
    """What a command begins with to run as that user, and still end with its parent."""
    if user is None:
        return ()
    return (_SETPRIV, f"--reuid={user}", f"--regid={user}", "--clear-groups", "--pdeathsig=TERM", "--")


def _other_user(directory: Path) -> int | None:
    """`nobody` where this process may become that user, who can run Java and enter the directory; else None."""
    if os.geteuid() != 0 or not Path(_SETPRIV).exists():
        return None
    command = (*as_user(_NOBODY), str(java_home_for_spark() / "bin" / "java"), "-version")
    ended = subprocess.run(command, cwd=directory, capture_output=True, check=False)
    return _NOBODY if ended.returncode == 0 else None


def _linked(source: str, target: str) -> None:
    """A hard link to a file that nobody changes, or a copy where another disk is."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
