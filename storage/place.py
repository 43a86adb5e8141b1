"""On what kind of file system a SQLite ledger lies: over a network its locks need not hold between machines."""

from pathlib import Path

_OF_THE_KERNEL = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "afs",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "orangefs",
    "ocfs2",
    "gfs2",
    "9p",
}
_IN_USER_SPACE = {"sshfs", "s3fs", "rclone", "glusterfs", "ceph-fuse", "gcsfuse", "juicefs", "smb"}
_NETWORK = frozenset(_OF_THE_KERNEL | {f"fuse.{name}" for name in _IN_USER_SPACE})
"""Types that the kernel names for file systems other machines write as well."""


def network_type(path: Path) -> str:
    """The type of the network file system that holds a path, as the kernel names it; empty where it is none."""
    import psutil  # of no use to those who only read

    resolved = path.resolve()
    mounts = [one for one in psutil.disk_partitions(all=True) if resolved.is_relative_to(one.mountpoint)]
    # Of those mounted on one place the last hides the others.
    nearest = max(enumerate(mounts), key=lambda one: (len(one[1].mountpoint), one[0]), default=None)
    kind = nearest[1].fstype if nearest else ""
    return kind if kind in _NETWORK else ""
