"""A CephFS file system in the pods of a job without a server: a volume of ceph-csi's driver, and a claim on it."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddlecloud.job import CephFSVolume

#: Where ceph-csi is installed, and where alone keys of Ceph users are: see deploy/ceph-csi in the repository.
DRIVER_NAMESPACE = "ceph-csi"
_DRIVER = "cephfs.csi.ceph.com"
#: Where programs from 2017 look for it.
_DATA = "/data"
_GROUP = "cloud.paddlepaddle.org/group"

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")
_OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def check(volume: CephFSVolume) -> str | None:
    """The reason why it cannot be used, as a sentence."""
    monitors = [address.strip() for address in volume.monitors_addr.split(",")]
    if not all(_ADDRESS.fullmatch(address) for address in monitors):
        return f"`monitors_addr` must be addresses like `10.0.0.1:6789`, separated by commas, not `{volume.monitors_addr}`"
    if not _OBJECT_NAME.fullmatch(volume.secret_name):
        return f"`secret_name` must be the name of a Secret, not `{volume.secret_name}`"
    if not volume.user:
        return "`user` is empty"
    for name, path in [("path", volume.path), ("mount_path", volume.mount_path)]:
        if not path.startswith("/") or ".." in path.split("/"):
            return f"`{name}` must be an absolute path, not `{path}`"
    if volume.mount_path.rstrip("/") == "":
        return "`mount_path` must be a folder below `/`"
    return None


def add(volume: CephFSVolume, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects with the volume, its claim, and both mounts in every pod."""
    group = objects[0]["metadata"]["labels"][_GROUP]
    # A volume that was once claimed is not claimed again, so every submission has its own.
    name = f"{group}-cephfs-{secrets.token_hex(4)}"
    for item in objects:
        if item["kind"] == "Job":
            _mount(volume, item["spec"]["template"]["spec"], name)
    return [*_volume_and_claim(volume, group, name), *objects]


def _volume_and_claim(volume: CephFSVolume, group: str, name: str) -> list[dict[str, Any]]:
    metadata = {"name": name, "labels": {_GROUP: group}}
    # A class of their own keeps every other claim away. CephFS ignores the size, which must be given.
    same = {"accessModes": ["ReadWriteMany"], "storageClassName": name}
    monitors = ",".join(address.strip() for address in volume.monitors_addr.split(","))
    driver = {
        "driver": _DRIVER,
        "volumeHandle": name,
        "volumeAttributes": {"monitors": monitors, "provisionVolume": "false", "rootPath": volume.path},
        "nodeStageSecretRef": {"namespace": DRIVER_NAMESPACE, "name": volume.secret_name},
    }
    spec = {**same, "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain", "csi": driver}
    # The Secret decides who the user is; this shows an administrator who was meant.
    noted = {**metadata, "annotations": {"cloud.paddlepaddle.org/ceph-user": volume.user}}
    claim = {**same, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": noted, "spec": spec},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim},
    ]


def _mount(volume: CephFSVolume, pod: dict[str, Any], name: str) -> None:
    pod.setdefault("volumes", []).append({"name": "cephfs", "persistentVolumeClaim": {"claimName": name}})
    places = dict.fromkeys([volume.mount_path.rstrip("/"), _DATA])
    for container in pod["containers"]:
        mounts = container.setdefault("volumeMounts", [])
        mounts.extend({"name": "cephfs", "mountPath": place} for place in places)
