"""The manifests of deploy/kubernetes: valid by the operator's own schema, and their parts fit each other."""

import copy
import json
import os
import sys
import unittest

sys.dont_write_bytecode = True
from crd import problems  # noqa: E402
from deploy_test import BUILD, DEPLOY, DeployTest, load_yaml, main, manifests, shared_data, templates  # noqa: E402

STRING, NUMBER = {"type": "string"}, {"type": "integer"}
METADATA = {"type": "object", "required": ["name"], "properties": {"name": STRING, "namespace": STRING}}


def resource(spec: dict) -> dict:
    return {"type": "object", "required": ["apiVersion", "kind", "metadata", "spec"],
            "properties": {"apiVersion": STRING, "kind": STRING, "metadata": METADATA, "spec": spec}}


class Schema(DeployTest):
    """What Kubernetes would say of each document. The PyTorchJob's schema contains that of pods, and of claims."""

    def setUp(self):
        super().setUp()
        path = shared_data("k8s", "kubeflow.org_pytorchjobs.yaml")
        if path is None:
            self.skipTest("there is no ../shared/data/k8s/kubeflow.org_pytorchjobs.yaml")
        (definition,) = load_yaml(path)
        (version,) = definition["spec"]["versions"]
        self.schema = version["schema"]["openAPIV3Schema"]

    def schema_of(self, document: dict) -> dict:
        """The API server's own metadata are not in it."""
        job = self.schema["properties"]["spec"]
        template = job["properties"]["pytorchReplicaSpecs"]["additionalProperties"]["properties"]["template"]
        pod = template["properties"]["spec"]
        volume = pod["properties"]["volumes"]["items"]["properties"]["ephemeral"]["properties"]["volumeClaimTemplate"]
        if document["kind"] == "PyTorchJob":
            return resource(job)
        if document["kind"] == "PersistentVolumeClaim":
            return resource(volume["properties"]["spec"])
        if document["kind"] == "Job":
            return resource({"type": "object", "required": ["template"], "properties": {
                "completionMode": {"type": "string", "enum": ["Indexed", "NonIndexed"]}, "completions": NUMBER,
                "parallelism": NUMBER, "backoffLimit": NUMBER, "template": template}})
        if document["kind"] == "Service":
            port = {"type": "object", "required": ["port"], "properties": {"name": STRING, "port": NUMBER}}
            return resource({"type": "object", "properties": {
                "clusterIP": STRING, "publishNotReadyAddresses": {"type": "boolean"},
                "selector": {"type": "object", "additionalProperties": STRING},
                "ports": {"type": "array", "items": port}}})
        self.assertEqual(document["kind"], "Namespace")
        return {**resource({}), "required": ["apiVersion", "kind", "metadata"]}

    def test_every_document_is_valid(self):
        for name, documents in manifests().items():
            for kind, document in documents.items():
                self.assertEqual(problems(document, self.schema_of(document)), [], f"{name}, {kind}")

    def test_mistakes_are_found(self):
        job = manifests()["pytorchjob.yaml"]["PyTorchJob"]

        def mistakes(change) -> str:
            wrong = copy.deepcopy(job)
            spec = wrong["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
            change(wrong["spec"], spec, spec["containers"][0])
            return "\n".join(problems(wrong, self.schema_of(wrong)))

        for change, says in (
                (lambda job, pod, c: job.pop("pytorchReplicaSpecs"), "pytorchReplicaSpecs is missing"),
                (lambda job, pod, c: job.update(nprocPerNode=2), "should be of type string"),
                (lambda job, pod, c: job["pytorchReplicaSpecs"]["Master"].update(replicas="1"), "should be of type int"),
                (lambda job, pod, c: pod.update(volume=[]), "there is no field volume"),
                (lambda job, pod, c: pod.update(containers={}), "should be of type array"),
                (lambda job, pod, c: c.pop("name"), "name is missing"),
                (lambda job, pod, c: c["command"].append(32), "command[19]: 32 should be of type string"),
                (lambda job, pod, c: c["resources"]["requests"].update(cpu=[2]), "should be a number or a string"),
                (lambda job, pod, c: c["ports"][0].update(containerPort=True), "should be of type integer")):
            self.assertIn(says, mistakes(change))


class Agreement(DeployTest):
    """What no schema sees."""

    def setUp(self):
        super().setUp()
        self.manifests = manifests()

    def test_the_job_of_the_document_and_its_variants_are_there(self):
        kinds = {name: sorted(set(documents) - {"Namespace", "PersistentVolumeClaim"})
                 for name, documents in self.manifests.items()}
        self.assertEqual(kinds, {"pytorchjob.yaml": ["PyTorchJob"], "pytorchjob-gpu.yaml": ["PyTorchJob"],
                                 "pytorchjob-elastic.yaml": ["PyTorchJob"], "indexed-job.yaml": ["Job", "Service"]})
        for name, replicas in (("pytorchjob.yaml", {"Master": 1, "Worker": 1}),
                               ("pytorchjob-gpu.yaml", {"Master": 1, "Worker": 1}), ("pytorchjob-elastic.yaml", {"Worker": 3})):
            specs = self.manifests[name]["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]
            self.assertEqual({kind: spec["replicas"] for kind, spec in specs.items()}, replicas)
            self.assertEqual({spec["restartPolicy"] for spec in specs.values()}, {"OnFailure"})

    def test_all_of_a_file_is_in_one_namespace_and_no_name_is_used_for_two_jobs(self):
        names = []
        for name, documents in self.manifests.items():
            (namespace,) = {d["metadata"]["namespace"] for kind, d in documents.items() if kind != "Namespace"}
            self.assertEqual(documents["Namespace"]["metadata"]["name"], namespace, name)
            names += [(kind, d["metadata"]["name"]) for kind, d in documents.items() if kind != "Namespace"]
        self.assertEqual(len(set(names)), len(names))

    def test_volumes_are_claimed_and_mounted_where_files_go(self):
        for name, documents in self.manifests.items():
            claim = documents["PersistentVolumeClaim"]
            for template in templates(documents).values():
                (container,) = template["spec"]["containers"]
                (volume,) = template["spec"]["volumes"]
                self.assertEqual(volume["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"], name)
                (mount,) = container["volumeMounts"]
                self.assertEqual(mount["name"], volume["name"])
                for word in container["command"]:
                    if word.startswith("/"):
                        self.assertEqual(os.path.dirname(word), mount["mountPath"], name)

    def test_pods_run_without_rights_as_the_images_user(self):
        with open(os.path.join(DEPLOY, "Dockerfile"), encoding="utf-8") as file:
            (user,) = [line.split()[1] for line in file if line.startswith("USER ")]
        for name, documents in self.manifests.items():
            for template in templates(documents).values():
                pod, (container,) = template["spec"], template["spec"]["containers"]
                self.assertEqual(f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}", user)
                self.assertTrue(pod["securityContext"]["runAsNonRoot"], name)
                self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"], name)

    def test_the_operators_names_are_kept(self):
        for documents in self.manifests.values():
            if "PyTorchJob" in documents:
                for template in templates(documents).values():
                    (container,) = template["spec"]["containers"]
                    self.assertEqual(container["name"], "pytorch")
                    self.assertEqual([p["name"] for p in container["ports"]], ["pytorchjob-port"])

    def test_the_elastic_job_has_as_many_pods_as_it_allows(self):
        spec = self.manifests["pytorchjob-elastic.yaml"]["PyTorchJob"]["spec"]
        policy, replicas = spec["elasticPolicy"], spec["pytorchReplicaSpecs"]["Worker"]["replicas"]
        self.assertLessEqual(policy["minReplicas"], replicas)
        self.assertLessEqual(replicas, policy["maxReplicas"])

    def test_the_service_of_the_indexed_job_names_its_pods(self):
        documents = self.manifests["indexed-job.yaml"]
        job, service = documents["Job"], documents["Service"]
        pod = job["spec"]["template"]["spec"]
        name = job["metadata"]["name"]
        self.assertEqual(service["spec"]["selector"], {"job-name": name})
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertTrue(service["spec"]["publishNotReadyAddresses"])
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        variables = {v["name"]: v["value"] for v in pod["containers"][0]["env"]}
        self.assertEqual(variables["MASTER_ADDR"], f"{name}-0.{service['metadata']['name']}")
        ports = {variables["MASTER_PORT"], str(service["spec"]["ports"][0]["port"]),
                 str(pod["containers"][0]["ports"][0]["containerPort"])}
        self.assertEqual(len(ports), 1)
        self.assertEqual({variables["WORLD_SIZE"]}, {str(job["spec"]["completions"]), str(job["spec"]["parallelism"])})

    def test_the_image_is_the_one_that_the_dockerfile_tells_to_build(self):
        with open(os.path.join(DEPLOY, "Dockerfile"), encoding="utf-8") as file:
            text = file.read()
        images = {t["spec"]["containers"][0]["image"] for d in self.manifests.values() for t in templates(d).values()}
        self.assertEqual(len(images), 1)
        self.assertIn(f"docker build -f deploy/Dockerfile -t {images.pop()} .", text)


class Commands(DeployTest):
    def test_the_real_programs_take_every_command(self):
        data = self.digits(64, 32)
        os.mkdir(self.path("results"))
        for name, documents in manifests().items():
            for kind, template in templates(documents).items():
                with self.subTest(f"{name}, {kind}"):
                    words = [word.replace("/results", self.path("results"))
                             for word in template["spec"]["containers"][0]["command"]]
                    environment = {"PATH": os.path.join(BUILD, "bin") + ":/usr/bin:/bin", "ATHANOR_DATA": data}
                    done = self.run_command(*words, "--dry-run", env=environment)
                    self.assertEqual(done.returncode, 0, json.dumps(words) + done.stderr)
                    self.assertIn("Test set: ", done.stdout)
                    wrong = self.run_command(*words, "--no-such-flag", env=environment)
                    self.assertNotEqual(wrong.returncode, 0)
                    self.assertIn("--no-such-flag", wrong.stderr)


if __name__ == "__main__":
    main()
