"""The options of `cbbench serve`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import CbbenchError
from harness.server.options import ServeOptions, read_serve_options

OPTIONS = ServeOptions("continuous[max_num_seqs=8]")


def read(environment=None, **fields):
    return read_serve_options(replace(OPTIONS, **fields), environment=environment or {})


def test_defaults_are_safe():
    config = read()
    assert (config.host, config.api_key) == ("127.0.0.1", None)
    assert config.limits.most_waiting == 256
    assert config.limits.body.most_bytes == 4 * 2**20
    assert config.engine.settings["max_num_seqs"] == 8
    assert config.model_name == "tiny"


def test_the_served_name_hides_a_folder(tmp_path):
    assert read(model=str(tmp_path)).model_name == tmp_path.name
    assert read(model=str(tmp_path), served_model_name="mine").model_name == "mine"


def test_the_key_comes_from_the_environment():
    assert read({"K": "secret"}, api_key_env="K").api_key == "secret"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"port": "65536"}, "--port is '65536'; expected a port, 0 to 65535"),
        ({"port": "x"}, "--port is 'x'"),
        ({"max_waiting": "-1"}, "--max-waiting is '-1'; expected a whole number >= 0"),
        ({"max_body": "big"}, "--max-body is 'big'; expected a size"),
        ({"engine": "static,continuous"}, "names 2 engines; expected one"),
        ({"engine": "openai[model=tiny]"}, "which is a server already; expected an engine without"),
        ({"engine": "x"}, "unknown engine 'x'"),
        ({"dtype": "int8"}, "--dtype is 'int8'"),
        ({"api_key_env": "K"}, "--api-key-env names 'K'"),
    ],
)
def test_mistakes_are_told(fields, says):
    with pytest.raises(CbbenchError, match=says.replace("[", r"\[")):
        read(**fields)


@pytest.mark.parametrize("name", ["openai", "server", "served", "vllm", "sglang"])
def test_a_server_is_no_engine_to_serve(name):
    settings = "[command=x --port {port}]" if name == "server" else ""
    with pytest.raises(CbbenchError, match=f"--engine is '{name}.* is a server already"):
        read(engine=name + settings)
