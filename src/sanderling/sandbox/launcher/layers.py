"""Stores (one size-limited tmpfs each) and the overlays over the layers that they hold.

A layer is a directory `<store>/<name>` with an entry for each part that it changes (`PARTS`). The work directory that
overlayfs needs beside an upper layer is `<store>/.<name>`.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from . import copying, root, syscalls

_WORKSPACE = "work"
PARTS = {"work": "/work", "tmp": "/tmp", "home": "/home/agent", "shm": "/dev/shm"}
_MODES = {"work": 0o755, "tmp": 0o1777, "home": 0o755, "shm": 0o1777}


def store_path(name: str) -> str:
    return f"{root.STORES}/{name}"


def create_store(name: str, size: int, inodes: int) -> None:
    path = store_path(name)
    os.mkdir(path)
    try:
        _mount_store(path, size, inodes, 0)
    except OSError:
        os.rmdir(path)
        raise


def _mount_store(path: str, size: int, inodes: int, flags: int) -> None:
    flags |= syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("tmpfs", path, "tmpfs", flags, f"mode=755,size={size},nr_inodes={inodes}")


def resize_store(name: str, extra: int, extra_inodes: int) -> None:
    """Let the store grow by `extra` bytes and `extra_inodes` over what it holds now."""
    path = store_path(name)
    usage = os.statvfs(path)
    size = (usage.f_blocks - usage.f_bfree) * usage.f_frsize + extra
    inodes = usage.f_files - usage.f_ffree + extra_inodes
    _mount_store(path, size, inodes, syscalls.MS_REMOUNT)


def used_bytes(name: str) -> int:
    usage = os.statvfs(store_path(name))
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


def drop_store(name: str) -> None:
    path = store_path(name)
    syscalls.umount(path)
    os.rmdir(path)


def create_first(layer: str, uid: int, gid: int) -> None:
    """Create the lowest layer with all parts, owned by the sandbox's user."""
    path = f"{root.STORES}/{layer}"
    os.mkdir(path)
    for part, mode in _MODES.items():
        os.mkdir(f"{path}/{part}")
        os.chown(f"{path}/{part}", uid, gid)
        os.chmod(f"{path}/{part}", mode)


def create_upper(layer: str) -> None:
    store, name = layer.split("/")
    os.mkdir(f"{root.STORES}/{store}/{name}", 0o755)
    os.mkdir(f"{root.STORES}/{store}/.{name}", 0o755)


def finish_upper(layer: str) -> list[str]:
    """Remove the overlay's work directory; remove an untouched upper too. Return the parts that were changed."""
    store, name = layer.split("/")
    work = f"{root.STORES}/{store}/.{name}"
    for inner in ("work/work", "work", "index", ""):
        try:
            os.rmdir(f"{work}/{inner}")
        except OSError:
            continue
    upper = f"{root.STORES}/{store}/{name}"
    changed = os.listdir(upper)
    if not changed:
        os.rmdir(upper)
    return changed


def mount_merged(layers: list[str], upper: str | None, options: str, target: str = root.MERGED) -> None:
    """Mount the overlay of `layers` (lowest first), with `upper` on top where it is given.

    Paths are relative to the directory of stores, because the kernel limits the options to one page.
    """
    lower = ":".join(reversed(layers))
    os.chdir(root.STORES)
    if upper is None:
        if len(layers) == 1:  # an overlay without upper needs two layers
            syscalls.bind(layers[0], target)
            return
        syscalls.mount("overlay", target, "overlay", syscalls.MS_RDONLY, f"{options},lowerdir={lower}")
        return
    store, name = upper.split("/")
    syscalls.mount(
        "overlay", target, "overlay", 0, f"{options},lowerdir={lower},upperdir={upper},workdir={store}/.{name}"
    )


def open_workspace(layers: list[str], upper: str | None, options: str) -> int:
    """Return a descriptor of the merged workspace. The overlay lives exactly as long as the descriptor."""
    mount_merged(layers, upper, options)
    try:
        return os.open(f"{root.MERGED}/{_WORKSPACE}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.chdir("/")
        syscalls.umount(root.MERGED)


def open_directory(path: str) -> int:
    return os.open(f"{root.STORES}/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def overlay_options(mode: dict[str, Any]) -> str:
    """Return the mount options for overlays: real root can follow renamed directories, a user namespace can't."""
    if mode["user_namespace"]:
        return "userxattr"
    return "redirect_dir=on,index=off,metacopy=off,xino=off"


def check_overlay(options: str) -> None:
    """Mount an overlay and see that a directory removed and made again stays empty, which needs extended attributes.

    Raises:
        OSError: this kernel has no overlays that this user could mount on a tmpfs, or incomplete ones.
    """
    create_store("trial", 1 << 20, 100)
    try:
        create_first("trial/0", os.getuid(), os.getgid())
        os.makedirs(f"{root.STORES}/trial/0/work/folder/inner")
        create_upper("trial/1")
        fd = open_workspace(["trial/0"], "trial/1", options)
        try:
            os.rmdir("folder/inner", dir_fd=fd)
            os.rmdir("folder", dir_fd=fd)
            os.mkdir("folder", dir_fd=fd)
            folder = os.open("folder", os.O_RDONLY | os.O_CLOEXEC, dir_fd=fd)
            left = os.listdir(folder)
            os.close(folder)
            if left:
                raise OSError(errno.ENOTSUP, "an overlay brings removed directories back")
        finally:
            os.close(fd)
    finally:
        drop_store("trial")


def merge(layers: list[str], target: str, options: str, obsolete: list[str]) -> None:
    """Copy everything that `layers` show into the new layer `target`, then remove the layers that nobody needs.

    Runs in a process of its own, since it takes as long as there is data.
    """
    syscalls.unshare(syscalls.CLONE_NEWNS)
    mount_merged(layers, None, options)
    _copy_into(target, root.MERGED)
    os.chdir("/")
    syscalls.umount(root.MERGED)
    remove(obsolete)


def _copy_into(layer: str, source: str) -> None:
    path = f"{root.STORES}/{layer}"
    os.mkdir(path, 0o755)
    source_fd = os.open(source, os.O_RDONLY | os.O_DIRECTORY)
    target_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        copying.copy_tree(source_fd, target_fd)
    except BaseException:
        remove([layer])
        raise
    finally:
        os.close(source_fd)
        os.close(target_fd)


def copy_parts(layer: str, sources: list[int]) -> None:
    """Fill the first layer of a store from open directories, one for each of `PARTS`. Runs in a process of its own."""
    for part, source in zip(PARTS, sources, strict=True):
        target = open_directory(f"{layer}/{part}")
        copying.copy_tree(source, target)
        os.close(target)


def remove(names: list[str]) -> None:
    """Remove layers with everything in them."""
    for layer in names:
        store, name = layer.split("/")
        directory = open_directory(store)
        copying.remove_tree(name, directory)
        os.close(directory)
