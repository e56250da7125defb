"""Pods without Kubernetes: each has a network namespace of its own on one bridge, its own process numbers, host name and
/etc/hosts, and the assembled image as its root. What `Kubelet` does is what a kubelet does: it starts containers, tells
them to stop, and starts failed ones again.
"""

import itertools
import os
import re
import signal
import string
import subprocess
import tempfile
import time
import unittest

from deploy_test import DEADLINE_S, USER


class Network:
    """A bridge with room for pods, and the names that a cluster's name server would know."""

    letters = itertools.cycle(string.ascii_lowercase)

    def __init__(self, test: unittest.TestCase):
        self.test = test
        self.prefix = f"ath{os.getpid()}{next(Network.letters)}"
        self.possible = False
        self.hub = f"{self.prefix}hub"
        self.spaces = []
        self.names = {}  # name -> address
        if os.geteuid() != 0:
            test.skipTest("pods need root: network namespaces, chroot")
        test.addCleanup(self.remove)
        self.remove_leftovers()
        self.add_space(self.hub)
        self.ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
        self.ip("-n", self.hub, "link", "set", "br0", "up")
        self.possible = True

    def ip(self, *words: str) -> None:
        try:
            done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        except FileNotFoundError:
            self.test.skipTest("there is no program ip")
        if done.returncode != 0 and not self.possible:
            self.test.skipTest(f"no network namespaces: {done.stderr.strip()}")
        self.test.assertEqual(done.returncode, 0, done.stderr)

    def remove_leftovers(self) -> None:
        """Of tests that were killed and could not clean up."""
        for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else ():
            owner = re.fullmatch(r"ath(\d+)[a-z](hub|p\d+)", name)
            if owner and not os.path.exists(f"/proc/{owner[1]}"):
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def add_space(self, name: str) -> None:
        self.ip("netns", "add", name)
        self.spaces.append(name)

    def add_pod(self, number: int) -> str:
        """The network namespace of a new pod, with the address 10.78.0.`number`."""
        name, cable = f"{self.prefix}p{number}", f"ath{number}"
        self.add_space(name)
        self.ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", cable, "netns", self.hub)
        self.ip("-n", self.hub, "link", "set", cable, "master", "br0", "up")
        self.ip("-n", name, "addr", "add", f"10.78.0.{number}/24", "dev", "eth0")
        self.ip("-n", name, "link", "set", "eth0", "up")
        self.ip("-n", name, "link", "set", "lo", "up")
        return name

    def cut(self, number: int) -> None:
        """Pulls a pod's cable: nobody is told."""
        self.ip("-n", self.hub, "link", "set", f"ath{number}", "down")

    def remove_pod(self, name: str) -> None:
        self.spaces.remove(name)
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def remove(self) -> None:
        for name in self.spaces:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        self.spaces = []


class Pod:
    """One pod: an address and a name as long as it lives, a container that may be started several times."""

    numbers = iter(range(2, 250))

    def __init__(self, cluster, name: str, command: list, variables: dict):
        self.cluster, self.name, self.command, self.variables = cluster, name, command, variables
        self.number = next(Pod.numbers)
        self.address = f"10.78.0.{self.number}"
        self.space = cluster.network.add_pod(self.number)
        self.hosts = tempfile.NamedTemporaryFile("w", prefix="hosts")
        self.process, self.status, self.starts, self.again_at = None, None, 0, None
        self.output = tempfile.TemporaryFile()
        self.container = None

    # Mounts belong to the container alone; process 1 is the program itself.
    SET_UP = ('set -e; hostname "$NAME"; mount --make-rprivate /; mount --bind "$HOSTS" "$TREE/etc/hosts"; '
              'mount -t proc proc "$TREE/proc"; mount --bind "$RESULTS" "$TREE/results"; mount --bind "$DATA" "$TREE/data"; '
              'cd "$TREE"; exec env -u NAME -u HOSTS -u TREE -u RESULTS -u DATA -u RUN_AS '
              'chroot --userspec="$RUN_AS" . "$@"')

    def start(self) -> None:
        self.starts += 1
        self.status = self.again_at = None
        cluster = self.cluster
        set_up = {"NAME": self.name, "HOSTS": self.hosts.name, "TREE": cluster.tree, "RESULTS": cluster.results,
                  "DATA": cluster.data, "RUN_AS": USER}
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, "unshare", "--mount", "--uts", "--ipc", "--pid", "--fork",
             "--kill-child", "sh", "-c", self.SET_UP, "sh", f"/usr/bin/{self.command[0]}", *self.command[1:]],
            stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/opt/athanor", **self.variables, **set_up})

    def text(self) -> str:
        return os.pread(self.output.fileno(), os.fstat(self.output.fileno()).st_size, 0).decode(errors="replace")

    def main_process(self) -> int:
        """The number, outside, of the container's process 1."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="utf-8") as file:
            children = file.read().split()
        return int(children[0]) if children else 0

    def signal(self, number: int) -> None:
        os.kill(self.main_process(), number)

    def poll(self) -> bool:
        """Whether the container has ended; its status is that which it gave, 137 after SIGKILL."""
        if self.process is None:
            return True
        code = self.process.poll()
        if code is None:
            return False
        self.status = 128 - code if code < 0 else code
        self.process = None
        return True

    def kill(self) -> None:
        """At once. Process 1 takes all others of its container along."""
        if self.process:
            main = self.main_process()
            if main:
                os.kill(main, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
            self.process = None

    def cut_off(self) -> None:
        self.cluster.network.cut(self.number)

    def remove(self) -> None:
        self.kill()
        self.cluster.network.remove_pod(self.space)
        self.cluster.forget(self.name)


class Cluster:
    """Pods that share names and a volume."""

    BACK_OFF_S = 0.3  # a kubelet begins with 10 s

    def __init__(self, test, tree: str, data: str, results: str):
        self.test, self.tree, self.data, self.results = test, tree, data, results
        os.chmod(results, 0o777)
        self.network = Network(test)
        self.pods = {}
        test.addCleanup(self.kill_all)

    def kill_all(self) -> None:
        for pod in self.pods.values():
            pod.kill()

    def add(self, name: str, command: list, variables: dict) -> Pod:
        pod = self.pods[name] = Pod(self, name, command, variables)
        self.write_hosts()
        return pod

    def publish(self, name: str, pod: Pod) -> None:
        """What a service does: the name leads to the pod from now on."""
        self.network.names[name] = pod.address
        self.write_hosts()

    def forget(self, pod_name: str) -> None:
        pod = self.pods.pop(pod_name)
        self.network.names = {n: a for n, a in self.network.names.items() if a != pod.address}
        self.write_hosts()

    def write_hosts(self) -> None:
        for pod in self.pods.values():
            pod.hosts.seek(0)
            lines = ["127.0.0.1 localhost", f"{pod.address} {pod.name}"]
            lines += [f"{address} {name}" for name, address in self.network.names.items()]
            pod.hosts.write("\n".join(lines) + "\n")
            pod.hosts.truncate()
            pod.hosts.flush()
            os.chmod(pod.hosts.name, 0o644)

    def all_text(self) -> str:
        return "\n".join(f"--- {pod.name}, started {pod.starts} times, status {pod.status}\n{pod.text()}"
                         for pod in self.pods.values())

    def step(self) -> bool:
        """One look at all containers, restarting failed ones (restartPolicy OnFailure). True when all are done."""
        done = True
        for pod in self.pods.values():
            if not pod.poll():
                done = False
            elif pod.status != 0:
                done = False
                if pod.again_at is None:
                    pod.again_at = time.monotonic() + self.BACK_OFF_S
                elif time.monotonic() > pod.again_at:
                    pod.start()
        return done

    def until(self, condition, what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            self.step()
            if condition():
                return
            time.sleep(0.01)
        self.test.fail(f"{what}: not in {DEADLINE_S} s\n{self.all_text()}")

    def until_done(self) -> None:
        self.until(self.step, "all pods done")

    def until_says(self, pod: Pod, pattern: str, count: int = 1) -> None:
        self.until(lambda: len(re.findall(pattern, pod.text(), re.MULTILINE)) >= count, f"{pod.name} says {pattern}")

    def stop(self, pod: Pod) -> float:
        """SIGTERM, as before a node is emptied; the seconds that the container took to end."""
        begin = time.monotonic()
        pod.signal(signal.SIGTERM)
        while not pod.poll():
            if time.monotonic() - begin > DEADLINE_S:
                self.test.fail(f"{pod.name} does not end on SIGTERM\n{self.all_text()}")
            time.sleep(0.005)
        return time.monotonic() - begin
