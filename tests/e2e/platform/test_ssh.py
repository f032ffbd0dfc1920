"""OpenSSH's own clients and a sandbox of `sandyard serve`."""

import filecmp
import subprocess
import time
from hashlib import sha256
from pathlib import Path

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import signed_up

LAST_LINE = 4_000_000


def test_a_command_runs_and_files_go_up_and_down(tmp_path: Path) -> None:
    key, port = tmp_path / "key", free_port()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    environment = {"SSH_PORT": str(port), "SSH_HOST": "127.0.0.1"}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        ann = signed_up(server, "ann", mail=1)
        public_key = key.with_suffix(".pub").read_text()
        ann.call("POST", "/ssh-keys", {"name": "key", "public_key": public_key}, expect=201)
        [template] = ann.call("GET", "/templates?visibility=official&q=static")["templates"]
        body = {"name": "box", "template_id": template["template_id"]}
        box = ann.call("POST", "/sandboxes", body, expect=201)["sandbox_id"]
        ann.call("POST", f"/sandboxes/{box}/start")
        told = ("StrictHostKeyChecking=no", f"UserKnownHostsFile={tmp_path / 'known'}")
        options = ["-F", "none", "-i", str(key), *(word for each in told for word in ("-o", each))]
        there = f"{box}@127.0.0.1"
        command = "echo here; head -c 1000000 /dev/zero"
        output = subprocess.check_output(["ssh", *options, "-p", str(port), there, command])
        assert (output[:5], len(output)) == (b"here\n", 1_000_005)
        counted = ["ssh", *options, "-p", str(port), there, f"seq {LAST_LINE}"]
        counting, expected = (
            subprocess.Popen(words, stdout=subprocess.PIPE)
            for words in (counted, ["seq", str(LAST_LINE)])
        )
        time.sleep(1)  # enough to write much more than is stored
        assert digest_of(counting) == digest_of(expected)
        sent, back = tmp_path / "sent", tmp_path / "back"
        sent.write_bytes(bytes(range(256)) * 20_000)
        for names in ((sent, f"{there}:file"), (f"{there}:file", back)):
            subprocess.run(["scp", "-q", *options, "-P", str(port), *names], check=True)
        assert filecmp.cmp(sent, back, shallow=False)


def digest_of(process: "subprocess.Popen[bytes]") -> str:
    digest = sha256()
    with process:
        assert process.stdout is not None
        while piece := process.stdout.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
