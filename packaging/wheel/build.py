"""Builds the wheel from the Python client and the program. Standard library only.

usage: build.py CLIENT PROGRAM VERSION PLATFORMS OUT
"""

import base64
import hashlib
import sys
import tomllib
import zipfile
from pathlib import Path

# The same bytes give the same wheel.
DATE = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    client, program, version, tag, out = sys.argv[1:]
    project = tomllib.loads((Path(client) / "pyproject.toml").read_text())["project"]
    name = project["name"]
    info, files = f"{name}-{version}.dist-info", {}
    for path in sorted((Path(client) / "src").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files[str(path.relative_to(Path(client) / "src"))] = (path.read_bytes(), 0o644)
    files[f"{name}-{version}.data/scripts/pinfold"] = (Path(program).read_bytes(), 0o755)
    metadata = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version}",
        "Summary: The process manager for AI agents, and its Python client",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license']}",
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        *(f"Requires-Dist: {dependency}" for dependency in project["dependencies"]),
        "Description-Content-Type: text/markdown",
        "",
        (Path(client) / project["readme"]).read_text(),
    ]
    files[f"{info}/METADATA"] = ("\n".join(metadata).encode(), 0o644)
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in tag.split("."))
    wheel = f"Wheel-Version: 1.0\nGenerator: pinfold\nRoot-Is-Purelib: false\n{tags}"
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, (data, _) in files.items())
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    path = Path(out) / f"{name}-{version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    print(path)


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


main()
