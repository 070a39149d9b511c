"""`paddle.job`: the documents' names and example, and real jobs on the embedded server."""

import http.server
import json
import os
import subprocess
import sys
import threading

import pytest
from embedded import ENDLESS, LIMIT_SECONDS, home, package  # noqa: F401

import paddlecloud
from paddlecloud import errors

SMALL = {"pservers": 0, "trainers": 1, "cpu_nums": "100m", "memory": "128M"}


def the_documents_job(job):
    return job.PaddleJob(
        pservers=3,
        runtime_image="yancey1989/paddle-job",
        job_name="paddle-job",
        namespace="yanxu",
        use_gpu=False,
        cpu_num=3,
        trainer_package_path="/example/word2vec",
        entry_point="python train.py",
        cephfs_volume=job.CephFSVolume(
            monitors_addr="172.19.32.166:6789"
        ))


def test_the_example_is_taken_as_typed():
    import paddle.job as job

    paddle_job = the_documents_job(job)
    assert (paddle_job.pservers, paddle_job.trainers) == (3, 3)
    assert (paddle_job.cpu_nums, paddle_job.gpu_nums, paddle_job.memory) == (3, 0, "1Gi")
    volume = paddle_job.cephfs_volume
    assert (volume.user, volume.secret_name, volume.mount_path, volume.path) == (
        "admin",
        "cephfs-secret",
        "/mnt/cephfs",
        "/",
    )
    assert job.PaddleJob(job_name="a", entry_point="b").pservers == 2


def test_the_example_is_refused_with_everything_that_is_missing(home):  # noqa: F811
    import paddle.job as job

    with pytest.raises(errors.NotPossibleHere) as found:
        the_documents_job(job).submit()
    message = found.value.message
    assert "CephFS volume of `172.19.32.166:6789`" in message
    assert "`/example/word2vec` of the image `yancey1989/paddle-job`" in message
    assert "by a kubeconfig" in message and found.value.hints
    assert paddlecloud.Client().jobs_list(all=True).jobs == ()


def test_keywords_that_contradict_each_other_are_refused():
    import paddle.job as job

    named = {"job_name": "a", "entry_point": "b"}
    assert job.PaddleJob(**named, cpu_num=2, cpu_nums=2).cpu_nums == 2
    assert job.PaddleJob(**named, use_gpu=True).gpu_nums == 1
    assert job.PaddleJob(**named, gpu_nums=4).gpu_nums == 4
    with pytest.raises(TypeError, match="differ: 1 and 2"):
        job.PaddleJob(**named, cpu_num=2, cpu_nums=1)
    with pytest.raises(ValueError, match="contradict"):
        job.PaddleJob(**named, use_gpu=False, gpu_nums=1)
    with pytest.raises(ValueError, match="contradict"):
        job.PaddleJob(**named, use_gpu=True, gpu_nums=0)
    with pytest.raises(TypeError, match="colour"):
        job.PaddleJob(**named, colour="red")
    with pytest.raises(TypeError, match="CephFSVolume"):
        job.PaddleJob(**named, cephfs_volume="172.19.32.166:6789")


def test_a_type_of_gpus_is_refused_where_there_is_none(home, package):  # noqa: F811
    import paddle.job as job

    named = {"job_name": "which", "entry_point": "true"}
    assert job.PaddleJob(**named, gpu_type="a100").gpu_nums == 1
    assert job.PaddleJob(**named, gpu_type="a100", gpu_nums=2).gpu_nums == 2
    folder = package("print('never')")
    for asked in [{"gpu_type": "pretend-1"}, {"node_labels": {"pool": "pretend"}}]:
        paddle_job = job.PaddleJob(**named, trainer_package_path=folder, **SMALL, **asked)
        with pytest.raises(errors.PaddleCloudError) as found:
            paddle_job.submit()
        assert "pretend" in found.value.message and "no node" in found.value.message
    with pytest.raises(errors.PaddleCloudError, match="the trainers have none"):
        job.PaddleJob(**named, trainer_package_path=folder, **SMALL, gpu_type="a100", use_gpu=False).submit()


def test_a_job_is_submitted_followed_and_waited_for(home, package):  # noqa: F811
    import paddle.job as job

    program = "import os\nprint('trainer', os.environ['TRAINER_ID'], 'of', os.environ['TRAINERS'], os.environ['COLOUR'])"
    paddle_job = job.PaddleJob(
        job_name="two-trainers",
        entry_point="python3 train.py",
        trainer_package_path=package(program),
        envs={"COLOUR": "red"},
        namespace="anything",
        runtime_image="paddlepaddle/paddle",
        **{**SMALL, "trainers": 2},
    )
    submitted = paddle_job.submit()
    assert paddle_job.id == submitted.id
    assert submitted.job.image == "paddlepaddle/paddle"
    assert (submitted.job.gpu_type, submitted.job.node_labels) == (None, {})
    assert any("`paddlepaddle/paddle` is recorded, but not run" in note for note in submitted.notes)
    said = sorted(line for line in paddle_job.logs(follow=True) if line.stream == "output")
    assert said == ["trainer 0 of 2 red", "trainer 1 of 2 red"]
    assert paddle_job.wait(check=True) == paddle_job.status() == "Succeeded"
    found = job.PaddleJob(job_name="two-trainers", entry_point="-")
    assert found.detail().job.id == submitted.id


def test_a_job_is_killed_and_a_failure_is_raised_when_asked_for(home, package):  # noqa: F811
    import paddle.job as job

    paddle_job = job.PaddleJob(
        job_name="endless",
        entry_point="python3 train.py",
        trainer_package_path=package(ENDLESS),
        grace=1,
        **SMALL,
    )
    paddle_job.submit()
    with paddle_job.logs(follow=True) as lines:
        assert any(line == "up" for line in lines)
    with pytest.raises(TimeoutError, match="endless is still Running"):
        paddle_job.wait(timeout=0)
    paddle_job.kill()
    assert paddle_job.wait(LIMIT_SECONDS) == "Killed"
    with pytest.raises(errors.JobFailedError, match="endless Killed") as found:
        paddle_job.wait(check=True)
    assert found.value.job.id == paddle_job.id


DIST_TRAIN = """
import os
import paddle.job as job

def train():
    print("trained by", os.environ["TRAINER_ID"])

paddle_job = job.PaddleJob(
    job_name="dist", entry_point="python train.py", pservers=0, trainers=2, cpu_nums="500m", memory="2G"
)
if job.dist_train(train, paddle_job) is paddle_job:
    print(paddle_job.wait(check=True))
"""


def test_dist_train_submits_outside_and_trains_inside(home, package):  # noqa: F811
    folder = package(DIST_TRAIN)
    done = subprocess.run(
        [sys.executable, str(folder / "train.py")],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    client = paddlecloud.Client()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Succeeded\n"
    assert "dist is submitted (j_" in done.stderr
    trained = sorted(line for line in client.job_logs("dist") if line.startswith("trained"))
    assert trained == ["trained by 0", "trained by 1"]
    assert len(client.jobs_list(all=True, name="dist").jobs) == 1


def test_dist_train_takes_a_function(home):  # noqa: F811
    import paddle.job as job

    with pytest.raises(TypeError, match="without arguments"):
        job.dist_train("train", job.PaddleJob(job_name="a", entry_point="b"))


def test_a_kubeconfig_alone_is_refused_with_a_hint(tmp_path, monkeypatch):
    import paddle.job as job

    for name in ("KUBECONFIG", "PADDLECLOUD_PROGRAM", "PADDLECLOUD_HOME", "PADDLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("paddlecloud._program.find", lambda: None)
    paddle_job = job.PaddleJob(job_name="s2", entry_point="python train.py", runtime_image="x")
    with pytest.raises(errors.NoServerError, match="no server is configured") as found:
        paddle_job.submit()
    assert any("PADDLECLOUD_PROGRAM" in hint for hint in found.value.hints)
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("apiVersion: v1\n")
    with pytest.raises(errors.NotPossibleHere, match="kubeconfig .* alone") as found:
        paddle_job.submit()
    assert found.value.hints
    assert not (tmp_path / ".paddle" / "local" / "server.sock").exists()


class ApiServer(http.server.BaseHTTPRequestHandler):
    """Takes every object, except of the kinds that it has already."""

    def do_POST(self):
        made = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if made["kind"] in self.server.existing:
            status = {"kind": "Status", "status": "Failure", "reason": "AlreadyExists", "message": "there", "code": 409}
            return self.answer(409, status)
        self.server.made.append((self.path.split("?")[0], made))
        self.answer(201, made)

    def do_DELETE(self):
        self.server.deleted.append(self.path.split("?")[0])
        self.answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 200})

    def answer(self, code, body):
        body = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A stand-in for an API server, with a kubeconfig that leads to it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
    server.made, server.deleted, server.existing = [], [], set()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "minikube",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "minikube", "context": {"cluster": "here", "user": "me", "namespace": "own"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def job_in_an_image(job, **more):
    return job.PaddleJob(
        job_name="paddle-job",
        entry_point="python train.py",
        runtime_image="yancey1989/paddle-job",
        trainer_package_path="/example/word2vec",
        **more,
    )


def test_a_job_in_an_image_goes_to_the_cluster_of_the_kubeconfig(home, cluster, capsys):  # noqa: F811
    import paddle.job as job

    job_in_an_image(job, namespace="yanxu").submit()
    said = capsys.readouterr().err
    assert "context `minikube`" in said
    assert "`kubectl logs -n yanxu -l paddle-job=paddle-job`" in said
    assert [path for path, _ in cluster.made] == [
        "/api/v1/namespaces/yanxu/services",
        "/apis/batch/v1/namespaces/yanxu/jobs",
        "/apis/batch/v1/namespaces/yanxu/jobs",
    ]
    objects = [made for _, made in cluster.made]
    named = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert named == [("Service", "paddle-job"), ("Job", "paddle-job-pserver"), ("Job", "paddle-job-trainer")]
    assert [item["spec"]["completions"] for item in objects[1:]] == [2, 3]
    container = objects[2]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "yancey1989/paddle-job"
    assert container["command"][-1] == "cd /example/word2vec && python train.py"
    assert paddlecloud.Client().jobs_list(all=True, name="paddle-job").jobs == ()


def test_a_cephfs_is_a_volume_of_ceph_csi_without_a_key(home, cluster):  # noqa: F811
    import paddle.job as job

    the_documents_job(job).submit()
    paths = [path for path, _ in cluster.made]
    assert paths[:2] == ["/api/v1/persistentvolumes", "/api/v1/namespaces/yanxu/persistentvolumeclaims"]
    volume, claim, _, *jobs = [made for _, made in cluster.made]
    csi = volume["spec"]["csi"]
    assert csi["driver"] == "cephfs.csi.ceph.com"
    assert csi["volumeAttributes"] == {
        "monitors": "172.19.32.166:6789",
        "provisionVolume": "false",
        "rootPath": "/",
    }
    assert csi["nodeStageSecretRef"] == {"namespace": "ceph-csi", "name": "cephfs-secret"}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert len(jobs) == 2
    for item in jobs:
        pod = item["spec"]["template"]["spec"]
        assert {"name": "cephfs", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in pod["volumes"]
        mounts = pod["containers"][0]["volumeMounts"]
        places = [mount["mountPath"] for mount in mounts if mount["name"] == "cephfs"]
        assert places == ["/mnt/cephfs", "/data"]
    assert all(item["kind"] != "Secret" for _, item in cluster.made)


def test_a_job_that_already_exists_leaves_nothing_half_created(home, cluster):  # noqa: F811
    import paddle.job as job

    cluster.existing = {"Job"}
    with pytest.raises(errors.NotPossibleHere, match="Job `paddle-job-pserver` already exists") as found:
        job_in_an_image(job).submit()
    assert "kubectl delete service,job" in found.value.hints[0]
    assert cluster.deleted == ["/api/v1/namespaces/own/services/paddle-job"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("monitors_addr", "a b"), ("path", "data"), ("mount_path", "/"), ("secret_name", "A/B"), ("user", "")],
)
def test_an_invalid_cephfs_is_refused(field, value):
    import paddle.job as job

    fields = {"monitors_addr": "10.0.0.1:6789,ceph.example.org", field: value}
    with pytest.raises(ValueError, match=f"`{field}`"):
        job_in_an_image(job, cephfs_volume=job.CephFSVolume(**fields))
