"""The manifests' jobs, run by pods.py with what operators.py says they are given: late masters, lost workers, nodes that
start again, signals. Every pod runs the assembled image as a user without rights."""

import copy
import os
import re
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
import operators  # noqa: E402
from deploy_test import DeployTest, main, manifests  # noqa: E402
from pods import Cluster  # noqa: E402

# The manifests' networks would keep a test busy for minutes.
SMALL = ("--net", "tutorial", "--no-progress", "--data", "/data", "--threads", "1")
GRACE_S = 30


class ReplayTest(DeployTest):
    tree = None

    @classmethod
    def setUpClass(cls):
        cls.tree = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.tree.cleanup()

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        self.data = self.digits(1024, 100)
        self.cluster = self.new_cluster("results")
        if not os.listdir(self.tree.name):
            os.chmod(self.tree.name, 0o755)
            self.assemble(self.tree.name)

    def new_cluster(self, results: str) -> Cluster:
        os.mkdir(self.path(results))
        return Cluster(self, self.tree.name, self.data, self.path(results))

    def job(self, file: str) -> dict:
        documents = manifests()[file]
        return copy.deepcopy(documents.get("PyTorchJob") or documents["Job"])

    def add(self, pods: dict, *names: str, cluster=None, start=True, **variables) -> list:
        """Pods by name (all, if none is given), known to the others and started."""
        found = []
        for name in names or pods:
            command, given = pods[name]
            cluster = cluster or self.cluster
            pod = cluster.add(name, [*command, *SMALL], {"ATHANOR_OFFLINE": "1", **given, **variables})
            cluster.publish(name, pod)
            if start:
                pod.start()
            found.append(pod)
        return found

    def result(self, name: str, results: str = "results") -> bytes:
        with open(os.path.join(self.path(results), name), "rb") as file:
            return file.read()

    def undisturbed(self, pods: dict) -> bytes:
        """The model of the same job on a good day."""
        cluster = self.new_cluster("undisturbed")
        self.add(pods, cluster=cluster)
        cluster.until_done()
        self.assertEqual({pod.starts for pod in cluster.pods.values()}, {1}, cluster.all_text())
        return self.result("mnist.safetensors", "undisturbed")

    def assert_trained(self, epochs: int = 10) -> None:
        log = self.cluster.all_text()
        self.assertGreaterEqual(log.count("metricName: accuracy"), epochs, log)
        self.assertRegex(log, r"Accuracy: (\d\d|100)/100")
        self.assertTrue(self.result("mnist.safetensors"))


class MasterAndWorker(ReplayTest):
    """pytorchjob.yaml: the program without a launcher."""

    def setUp(self):
        super().setUp()
        self.pods = operators.pytorchjob(self.job("pytorchjob.yaml"))

    def test_they_train_and_leave_what_the_manifest_names(self):
        self.add(self.pods)
        self.cluster.until_done()
        self.assert_trained()
        self.assertEqual(sorted(os.listdir(self.path("results"))),
                         ["master.log", "mnist.ckpt", "mnist.safetensors", "worker.log.rank1"])
        for log in ("master.log", "worker.log.rank1"):
            lines = self.result(log).decode()
            self.assertRegex(lines, r"(?m)loss=\d+\.\d{4}$")
            self.assertRegex(lines, r"(?m)^\{metricName: accuracy, metricValue: [01]\.\d{4}\}$")

    def test_a_worker_waits_for_a_master_without_name_address_or_port(self):
        (worker,) = self.add(self.pods, "mnist-worker-0", ATHANOR_LOG="debug")
        self.cluster.until_says(worker, "looking for the store at mnist-master-0:23456")
        # The service knows the name; nobody listens there yet.
        (master,) = self.add(self.pods, "mnist-master-0", start=False)
        before = self.connections_begun(worker)
        self.cluster.until(lambda: self.connections_begun(worker) > before, "the worker tries to connect")
        master.start()
        self.cluster.until_done()
        self.assertEqual([worker.starts, master.starts], [1, 1], self.cluster.all_text())
        self.assert_trained()

    def connections_begun(self, pod) -> int:
        with open(f"/proc/{pod.process.pid}/net/snmp", encoding="utf-8") as file:
            names, values = (line.split() for line in file if line.startswith("Tcp:"))
        return int(values[names.index("ActiveOpens")])

    def test_the_job_goes_on_after_the_loss_of_either(self):
        expected = self.undisturbed(self.pods)
        for lost in (0, 1):
            with self.subTest(("master", "worker")[lost]):
                for name in os.listdir(self.path("results")):
                    os.remove(os.path.join(self.path("results"), name))
                pods = self.add(self.pods)
                self.cluster.until_says(pods[0], "^Train Epoch: 3")
                pods[lost].signal(signal.SIGKILL)
                self.cluster.until_done()
                self.assertRegex(pods[0].text(), r"Resumed from /results/mnist.ckpt at epoch [3-9], step 0")
                # Who is left says whom it misses.
                self.assertRegex(pods[1 - lost].text(), rf"(?i)rank {lost}\b")
                self.assertEqual(self.result("mnist.safetensors"), expected)
                for pod in pods:
                    pod.remove()

    def test_a_master_may_come_back_on_another_node(self):
        master, worker = self.add(self.pods)
        self.cluster.until_says(master, "^Train Epoch: 2")
        master.remove()
        (successor,) = self.add(self.pods, "mnist-master-0")
        self.assertNotEqual(successor.address, master.address)
        self.cluster.until_done()
        self.assertGreater(worker.starts, 1)
        self.assertRegex(successor.text(), r"Resumed from /results/mnist.ckpt at epoch [2-9]")
        self.assertTrue(self.result("mnist.safetensors"))

    def test_a_node_that_is_cut_off_does_not_keep_the_others_waiting(self):
        master, worker = self.add(self.pods, ATHANOR_KEEPALIVE="1")
        self.cluster.until_says(master, "^Train Epoch: 2")
        worker.cut_off()
        self.cluster.until(lambda: master.starts == 2, "the master has noticed")
        self.assertRegex(master.text(), r"(?i)rank 1\b.* is gone")
        worker.remove()  # the cluster gives up the node, and starts the pod on another one
        self.add(self.pods, "mnist-worker-0")
        self.cluster.until_done()
        self.assertRegex(master.text(), "Resumed from /results/mnist.ckpt at epoch [2-9]")

    def test_a_signal_to_one_saves_the_work_of_all(self):
        expected = self.undisturbed(self.pods)
        master, worker = self.add(self.pods)
        self.cluster.until_says(master, "^Train Epoch: 2")
        seconds = self.cluster.stop(worker)
        self.assertEqual(worker.status, 143, worker.text())
        self.assertLess(seconds, GRACE_S)
        self.cluster.until_done()
        self.assertIn("Interrupted; continue with --resume /results/mnist.ckpt", master.text())
        self.assertRegex(master.text(), r"Resumed from /results/mnist.ckpt at epoch \d+, step \d")
        self.assertEqual(self.result("mnist.safetensors"), expected)

    def test_a_signal_ends_a_container_that_still_waits(self):
        (worker,) = self.add(self.pods, "mnist-worker-0", ATHANOR_LOG="debug")
        self.cluster.until_says(worker, "looking for the store")
        self.assertLess(self.cluster.stop(worker), GRACE_S)
        self.assertEqual(worker.status, 143)

    def test_operators_that_call_the_master_localhost(self):
        self.add(operators.pytorchjob_of_old_operators(self.job("pytorchjob.yaml")))
        self.cluster.until_done()
        self.assert_trained()


class Launched(ReplayTest):
    """Jobs whose pods run agents."""

    def test_several_workers_per_pod(self):
        job = self.job("pytorchjob-gpu.yaml")
        job["spec"]["nprocPerNode"] = "2"  # instead of a worker per GPU
        self.add(operators.pytorchjob(job))
        self.cluster.until_done()
        self.assert_trained()
        self.assertIn("worker.log.rank3", os.listdir(self.path("results")))

    def test_version_2_of_the_operator(self):
        command = self.job("pytorchjob-gpu.yaml")["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
        pods = operators.trainjob("mnist", operators.container_of(command)["command"], 2, "1")
        self.add(pods)
        self.cluster.until_done()
        self.assert_trained()

    def test_a_pods_signal_reaches_its_workers_and_nothing_is_left(self):
        job = self.job("pytorchjob-gpu.yaml")
        job["spec"]["nprocPerNode"] = "2"
        master, worker = self.add(operators.pytorchjob(job))
        self.cluster.until_says(master, "metricName", 2)
        self.assertLess(self.cluster.stop(worker), GRACE_S)
        self.assertEqual(worker.status, 143, worker.text())
        self.cluster.until_done()
        self.assertIn("Interrupted; continue with --resume", master.text())
        self.assert_trained()

    def test_an_elastic_job_shrinks_and_grows(self):
        job = self.job("pytorchjob-elastic.yaml")
        job["spec"]["elasticPolicy"]["rdzvConf"] = [{"key": k, "value": v} for k, v in (
            ("last_call_timeout", "0.3"), ("keep_alive_interval", "0.2"), ("keep_alive_max_attempt", "3"))]
        pods = operators.pytorchjob(job)
        self.cluster.data = self.digits(6400, 100)
        first, *others = self.add(pods)
        everyone = self.cluster.all_text
        self.cluster.until(lambda: everyone().count("metricName") >= 2, "training")
        others[-1].remove()
        self.cluster.until(lambda: "The checkpoint is from 3 ranks, this run has 2" in everyone(), "going on with two")
        self.add(pods, "mnist-elastic-worker-2")
        self.cluster.until_done()
        self.assertIn("The checkpoint is from 2 ranks, this run has 3", everyone())
        self.assertTrue(self.result("mnist.safetensors"))


class WithoutOperator(ReplayTest):
    """indexed-job.yaml."""

    def setUp(self):
        super().setUp()
        self.pods = operators.indexed_job(self.job("indexed-job.yaml"))

    def test_pods_know_their_rank_from_their_number(self):
        second, first = self.add(self.pods, *reversed(self.pods))
        self.cluster.until_done()
        self.assert_trained()
        self.assertIn("metricName", first.text())
        self.assertEqual([first.starts, second.starts], [1, 1])

    def test_a_lost_pod_comes_back(self):
        expected = self.undisturbed(self.pods)
        pods = self.add(self.pods)
        self.cluster.until_says(pods[0], "^Train Epoch: 2")
        pods[1].signal(signal.SIGKILL)
        self.cluster.until_done()
        self.assertEqual(self.result("mnist.safetensors"), expected)


if __name__ == "__main__":
    main()
