"""Writes the inventory of an image: sbom.json (CycloneDX) and licences.txt, into a folder."""

import json
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

KNOWN_WORDS = {
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache License Version 2.0": "Apache-2.0",
    "Permission is hereby granted, free of charge": "MIT",
    "Redistribution and use in source and binary forms": "BSD",
}
"""Licences by a phrase in their text."""
UNSAID = {"protobuf-py-ext": "Apache-2.0"}
"""Packages without licence metadata: the licence of their project."""


def licence_of(distribution: Distribution) -> str:
    about = distribution.metadata
    classifiers = about.get_all("Classifier") or []
    named = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")]
    said = about.get("License-Expression") or "; ".join(named) or about.get("License")
    return str(
        said or _licence_in_file(distribution) or UNSAID.get(distribution.name, "unknown")
    ).splitlines()[0]


def _licence_in_file(distribution: Distribution) -> str | None:
    """The licence whose text is in the package's licence file."""
    for file in distribution.files or ():
        if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
            text = " ".join(file.read_text(encoding="utf-8").split())
            return next((name for words, name in KNOWN_WORDS.items() if words in text), None)
    return None


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(distributions(), key=lambda each: each.name.lower())
    components = [
        {
            "type": "library",
            "name": each.name,
            "version": each.version,
            "purl": f"pkg:pypi/{each.name.lower()}@{each.version}",
            "licenses": [{"license": {"name": licence_of(each)}}],
        }
        for each in found
    ]
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}
    (folder / "sbom.json").write_text(json.dumps(bill, indent=2) + "\n")
    lines = [f"{each.name} {each.version}: {licence_of(each)}\n" for each in found]
    (folder / "licences.txt").write_text("".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
