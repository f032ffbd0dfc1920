"""Writes what an image is made of: sbom.json (CycloneDX) and licences.txt, into a folder."""

import json
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path


def licence_of(distribution: Distribution) -> str:
    about = distribution.metadata
    classifiers = about.get_all("Classifier") or []
    named = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")]
    said = about.get("License-Expression") or "; ".join(named) or about.get("License") or "unknown"
    return str(said).splitlines()[0]


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
