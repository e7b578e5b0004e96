from __future__ import annotations

from pathlib import Path

import pytest

from coalface.cli import main
from coalface.config import ConfigError
from coalface.registry import Client, Clients, Limits, Tls, absent
from coalface.verbs.given import read_config


def test_absent_clients_are_counted_and_have_no_images() -> None:
    roster = absent([2, 1, 3], size=16)
    assert (len(roster), roster.classes, roster.first_class(2)) == (3, 6, 3)
    assert len(roster[1]) == 0 and roster[1].classes.tolist() == [2]
    assert roster.counts().tolist() == [0, 0, 0]
    assert len(roster.pooled()) == 1 and roster.pooled().classes == 6


def test_keys_write_what_the_two_sides_read(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    out = tmp_path / "keys"
    assert main(["keys", "north", "south", "--server", "127.0.0.1:9", "--identities", "2", "--out", str(out)]) == 0
    clients = Clients.read(out / "server" / "clients.toml")
    assert [(entry.name, entry.identities) for entry in clients.client] == [("north", 2), ("south", 2)]
    assert all(b"PUBLIC KEY" in key for key in clients.public_keys()) and len(set(clients.public_keys())) == 2
    assert Tls.of(out / "server").key.stat().st_mode & 0o077 == 0
    client = Client.read(out / "north" / "client.toml")
    assert (client.name, client.server, client.accept, client.limits) == ("north", "127.0.0.1:9", (), Limits())
    assert Path(client.key).stat().st_mode & 0o077 == 0 and Path(client.ca).exists() and client.seed == -1
    assert not list((out / "server").glob("*north*.key")) and not (out / "north" / "ca.key").exists()
    assert main(["keys", "north", "--out", str(out)]) == 2  # keys are not overwritten


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a", "--days", "0"], "from 1 to 36,500, not 0"),
        (["a", "--days", "99999999"], "from 1 to 36,500, not 99999999"),
        (["a", "../b"], "letters, digits"),
        (["a", "Server"], "'Server' is the server's own folder"),  # its client would be sent the CA's key
        (["a", "--identities", "0"], "at least 1, not 0"),
        (["a", "--server", "host:99999"], "HOST:PORT, not 'host:99999'"),
    ],
)
def test_keys_that_cannot_be_made_leave_nothing(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command, put right, must not meet a folder that is not empty."""
    pytest.importorskip("cryptography")
    assert main(["keys", *arguments, "--out", str(tmp_path / "keys")]) == 2
    error = capsys.readouterr().err
    assert says in error and len(error.splitlines()) == 1 and not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must hold"),
        ("client = 3", "must hold"),
        ("[[client]]\nname = 'a'", "the file of its public key"),
        ("[[client]]\nname = 'a'\nkey = 'k'\nidentities = 'many'", "identities must be a whole number"),
        ("[[client]]\nname = 'a'\nkey = 'k'\nidentites = 1", "did you mean client\\[0\\].identities"),
        ("[[client]]\nname='a'\nkey='k'\n[[client]]\nname='a'\nkey='l'", "name 'a' stands there twice"),
        ("[[client]]\nname='a'\nkey='k'\n[[client]]\nname='b'\nkey='k'", "key 'k' stands there twice"),
        ("[[client", "is not TOML"),
    ],
)
def test_a_clients_file_with_a_mistake_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "clients.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        Clients.read(tmp_path / "clients.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[limits]\nminutes = nan", "limits.minutes must be a finite number, not nan"),  # nothing would be more than it
        ("[limits]\nrounds = -1", "limits are 0 for none, or more, not -1, 0 and 0"),
        ("[noise]\nleast = inf", "noise.least must be a finite number, not inf"),
    ],
)
def test_limits_that_are_none_are_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "client.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        Client.read(tmp_path / "client.toml")


def test_settings_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for name, read in (("c.toml", Client.read), ("c.json", read_config)):
        (tmp_path / name).write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match=f"{name} is not"):
            read(tmp_path / name)


def test_missing_files_name_the_remedy(tmp_path: Path) -> None:
    for read in (Clients.read, Client.read):
        with pytest.raises(ConfigError, match="coalface keys"):
            read(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="coalface keys"):
        Tls.of(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["join", "FOLDER/none.toml"], "there is no"),
        (["join"], "no name"),
        (["join", "--name", "a", "--server", "x:1", "--data", "FOLDER", "--key", "FOLDER/k"], "there is no"),
        (["serve", "fedface", "--tls-dir", "FOLDER", "--clients", "FOLDER/c.toml", "--out", "FOLDER/o"], "there is no"),
        (["serve", "fedface", "--listen", "x", "--tls-dir", "FOLDER", "--clients", "c", "--out", "o"], "HOST:PORT"),
        (["serve", "fedface", "--in-flight", "0", "--tls-dir", "t", "--clients", "c", "--out", "o"], "not 0 and 60"),
        (["keys", "a", "a", "--out", "FOLDER/k"], "the same name"),
    ],
)
def test_bad_requests_get_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr")
    assert main([argument.replace("FOLDER", str(tmp_path)) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert says in error and len(error.splitlines()) == 1


def test_list_tells_how_to_agree(capsys: pytest.CaptureFixture[str]) -> None:
    from coalface.algorithms import METHODS
    from coalface.terms import fingerprint

    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(f'"{name} {fingerprint(kind)}"' in text for name, kind in METHODS.items())
    assert fingerprint(METHODS["fedface"]) != fingerprint(METHODS["chorus"])
