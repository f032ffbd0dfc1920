"""`python -m deploy.aws FILE…`: synthesises the templates of deployments, for the CDK's command
line."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.aws.app import add_deployments, new_app
from deploy.aws.config import ConfigurationError, Deployment, load_deployment


def main(paths: Sequence[str]) -> None:
    """Synthesises; exit code 1 if a file is invalid or the security rules have findings."""
    if not paths:
        sys.exit("Name a file such as deploy/aws/configurations/small.toml.")
    app = new_app()
    add_deployments(app, [_load(Path(path)) for path in paths])
    app.synth()


def _load(path: Path) -> Deployment:
    try:
        return load_deployment(path, os.environ)
    except (ConfigurationError, OSError, ValueError) as error:
        sys.exit("\n".join(f"{path.name}: {line}" for line in str(error).splitlines()))


if __name__ == "__main__":
    main(sys.argv[1:])
