"""What operators give the pods of a job: names, and variables beside those of the manifest. By the source of Kubeflow's
training operator, release 1.9 (envvar.go, master.go, elastic.go), of its trainer (torch.go), and of Kubernetes' Indexed
Jobs.
"""

import copy


def container_of(template: dict) -> dict:
    (container,) = template["spec"]["containers"]
    return container


def port_of(container: dict) -> str:
    ports = [p["containerPort"] for p in container.get("ports", ()) if p["name"] == "pytorchjob-port"]
    return str(ports[0] if ports else 23456)


def elastic_variables(job: dict, processes: str, port: str) -> dict:
    policy = job["spec"]["elasticPolicy"]
    first = f"{job['metadata']['name']}-worker-0"
    found = {"PET_RDZV_BACKEND": policy.get("rdzvBackend", "c10d"),
             "PET_RDZV_ENDPOINT": f"{policy.get('rdzvHost', first)}:{policy.get('rdzvPort', port)}",
             "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}"}
    if "maxRestarts" in policy:
        found["PET_MAX_RESTARTS"] = str(policy["maxRestarts"])
    if "rdzvId" in policy:
        found["PET_RDZV_ID"] = policy["rdzvId"]
    if "rdzvConf" in policy:
        found["PET_RDZV_CONF"] = ",".join(f"{item['key']}={item['value']}" for item in policy["rdzvConf"])
    if policy.get("standalone"):
        found["PET_STANDALONE"] = ""
    found["PET_NPROC_PER_NODE"] = str(policy.get("nProcPerNode", processes))
    return found


def pytorchjob(job: dict) -> dict:
    """Pod name -> (command, variables), for the operator's version 1."""
    name, replicas = job["metadata"]["name"], job["spec"]["pytorchReplicaSpecs"]
    processes = job["spec"].get("nprocPerNode", "auto")
    total = sum(replica["replicas"] for replica in replicas.values())
    pods = {}
    for kind, replica in replicas.items():
        container = container_of(replica["template"])
        for index in range(replica["replicas"]):
            found = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": processes}
            found.update({v["name"]: v["value"] for v in container.get("env", ())})
            if "Master" in replicas:
                rank = str(index if kind == "Master" else index + 1)
                port = port_of(container_of(replicas["Master"]["template"]))
                each = int(processes) if processes.isdigit() else 1
                found.update({"MASTER_ADDR": f"{name}-master-0", "PET_MASTER_ADDR": f"{name}-master-0",
                              "MASTER_PORT": port, "PET_MASTER_PORT": port, "WORLD_SIZE": str(total * each),
                              "RANK": rank, "PET_NODE_RANK": rank})
            if "elasticPolicy" in job["spec"]:
                found.update(elastic_variables(job, processes, port_of(container)))
            else:
                found["PET_NNODES"] = str(total)
            pods[f"{name}-{kind.lower()}-{index}"] = (container["command"], found)
    return pods


def pytorchjob_of_old_operators(job: dict) -> dict:
    """Up to version 1.3: the master's own address is localhost, and nothing is said to launchers."""
    pods = pytorchjob(job)
    for name, (_, variables) in pods.items():
        for variable in list(variables):
            if variable.startswith("PET_"):
                del variables[variable]
        if "-master-" in name:
            variables["MASTER_ADDR"] = "localhost"
    return pods


def trainjob(name: str, command: list, nodes: int, processes: str) -> dict:
    """Version 2 speaks to launchers only."""
    return {f"{name}-node-0-{i}.{name}": (copy.copy(command), {
        "PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": processes, "PET_NODE_RANK": str(i),
        "PET_MASTER_ADDR": f"{name}-node-0-0.{name}", "PET_MASTER_PORT": "29500"}) for i in range(nodes)}


def indexed_job(job: dict) -> dict:
    """Pods are named by their host name in the service's domain, as a program would ask for them."""
    name, pod = job["metadata"]["name"], job["spec"]["template"]["spec"]
    container = container_of(job["spec"]["template"])
    variables = {v["name"]: v["value"] for v in container["env"]}
    return {f"{name}-{i}.{pod['subdomain']}": (container["command"], {**variables, "JOB_COMPLETION_INDEX": str(i)})
            for i in range(job["spec"]["completions"])}
