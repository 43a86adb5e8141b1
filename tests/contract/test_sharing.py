"""One ledger for many: searches of several processes at once, readers that stay, Optuna's tables beside ours."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotune.model import SearchState
from autotune.storage.address import parse_address
from autotune.storage.store import Store
from tests.contract.samples import SEARCH
from tests.contract.searching import LARGEST, PROCESSES, planted, search, undisturbed
from tests.contract.test_schema import differences
from tests.contract.test_searching import keys, program
from tests.postgres import Server


@contextmanager
def a_reader_that_stays(url: str) -> Iterator[None]:
    """Somebody's program that looks at the ledger in a transaction and does not end it within the block."""
    address = parse_address(url)
    count = "SELECT count(*) FROM autotune_searches"
    if address.path is not None:
        reader = sqlite3.connect(address.path, isolation_level=None)
        reader.execute("BEGIN")
        before = reader.execute(count).fetchone()
        yield
        assert reader.execute(count).fetchone() == before
        reader.close()
        return
    import psycopg

    with psycopg.connect(host=str(address.url.query["host"]), user="postgres") as server_reader:
        server_reader.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET search_path TO {address.schema}")
        before = server_reader.execute(count).fetchone()
        yield
        assert server_reader.execute(count).fetchone() == before


SEARCHES = 2
"""Of each process."""


def test_c35_eight_processes_search_at_once_under_the_eyes_of_a_reader_and_nothing_is_lost(url: str) -> None:
    with Store.open(url) as store:
        store.begin(SEARCH)
        with a_reader_that_stays(url):
            done = program("many", url, str(SEARCHES))
        assert (done.stdout, done.stderr) == (f"{[0] * PROCESSES}\n", "")
        records = [record for record in store.searches(1000) if record.id != SEARCH.id]
        found = sorted((record.workload.ref, record.plan.seed) for record in records)
        assert found == [(f"worker{number}.py", seed) for number in range(PROCESSES) for seed in range(SEARCHES)]
        for record in records:
            assert record.state is SearchState.ANSWERED
            assert record.answer is not None and record.answer.max_batch == LARGEST
            assert keys(store, record.id) == undisturbed()


def test_eight_processes_that_make_the_ledger_itself_all_find_it(url: str) -> None:
    done = program("many", url, "0")
    assert (done.stdout, done.stderr) == (f"{[0] * PROCESSES}\n", "")
    with Store.open(url) as store:
        assert store.searches() == ()


class TestOptuna:
    """Studies in the same file, database and even schema."""

    @staticmethod
    def place(request: pytest.FixtureRequest, where: str) -> tuple[str, str]:
        """(our address, Optuna's) of one place for both."""
        if where == "file":
            path = request.getfixturevalue("tmp_path") / "shared.db"
            return str(path), f"sqlite:///{path}"
        server: Server = request.getfixturevalue("postgres")
        database = server.new_database()
        theirs = server.url(database=database)
        if where == "schema":
            server.sql("CREATE SCHEMA autotune", database)
            theirs += "&options=-csearch_path%3Dautotune"
        return server.url(database=database), theirs

    @pytest.mark.parametrize(
        ("where", "first"),
        [
            ("file", "optuna"),
            ("file", "autotune"),
            ("database", "optuna"),
            ("schema", "optuna"),
            ("schema", "autotune"),
        ],
    )
    def test_neither_side_disturbs_the_other(self, request: pytest.FixtureRequest, where: str, first: str) -> None:
        import optuna
        from optuna.storages import RDBStorage

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        ours, theirs = self.place(request, where)

        def tell(value: float) -> None:
            storage = RDBStorage(theirs)
            study = optuna.create_study(study_name="mine", storage=storage, load_if_exists=True)
            trial = study.ask()
            trial.suggest_int("depth", 1, 3)
            study.tell(trial, value)
            assert storage.get_head_version() == storage.get_current_version()
            storage.engine.dispose()

        if first == "optuna":
            tell(3.0)
        with Store.open(ours) as store:
            result = search(store, planted())
            tell(2.0)
            assert search(store, planted()).from_ledger
        tell(1.0)
        with Store.open(ours) as store:
            assert keys(store, result.search_id) == undisturbed()
            assert store.remove([record.id for record in store.searches()])
        assert differences(ours) == []
        storage = RDBStorage(theirs)
        values = [trial.value for trial in optuna.load_study(study_name="mine", storage=storage).trials]
        storage.engine.dispose()
        assert values == [3.0, 2.0, 1.0][first == "autotune" :]
