"""What only a database server does to its clients: deadlocks, and connections that are cut."""

from bench.harness.mariadb import MariaDb
from tests.support.children import child, run

LOSES = """
from django.core.management import call_command
from django.db import connection, transaction
from msgplatform.core.data import sql
from msgplatform.core.intake.group_commit import GroupCommit
from msgplatform.core.errors import Temporary
from msgplatform.models import Biz

def commit(names):
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            mine = cursor.fetchone()[0]
        Biz.objects.bulk_create([Biz(name=name) for name in names])
        if "in the middle" in names:
            say(mine)
            wait()
    return [mine] * len(names)

def submit(name):
    try:
        return group.submit(name)
    except Temporary as error:
        return type(error).__name__

call_command("migrate", verbosity=0)
group = GroupCommit(commit)
say(submit("first"))
wait()
say(submit("between"))
say(submit("in the middle"))
say(submit("after"))
say(sorted(Biz.objects.values_list("name", flat=True)))
"""


def test_a_connection_that_is_lost(mariadb: MariaDb) -> None:
    """Between groups it is made again unnoticed; within one the callers are told."""
    with child(LOSES, DATABASE_URL=mariadb.create("batching_lost")) as process:
        first = process.heard()
        process.ready()
        mariadb.execute(f"KILL CONNECTION {first}")
        process.go()
        assert process.heard() not in (first, "OutcomeUnknown")
        in_the_middle = process.heard()
        process.ready()
        mariadb.execute(f"KILL CONNECTION {in_the_middle}")
        process.go()
        assert process.heard() == "OutcomeUnknown"
        assert isinstance(process.heard(), int)
        assert process.heard() == ["after", "between", "first"]


DEADLOCK = """
from django.core.management import call_command
from django.db import connection, transaction
from gateway.models import SgipMo
from msgplatform.core.data import transactions
from msgplatform.models import Biz

def work(number):
    mine, other = (1, 2) if number == 0 else (2, 1)
    attempts = []
    def once():
        attempts.append(1)
        with transaction.atomic():
            Biz.objects.filter(id=mine).update(title=f"{number}")
            if len(attempts) == 1:
                both_hold_one.wait()
            Biz.objects.filter(id=other).update(title=f"{number}")
    transactions.retrying(once)
    return len(attempts)

call_command("migrate", verbosity=0)
Biz.objects.bulk_create([Biz(id=1, name="a"), Biz(id=2, name="b")])
connection.close()
both_hold_one = multiprocessing.Barrier(2)
together(work, 2)
"""


def test_a_real_deadlock_is_repeated(mariadb: MariaDb) -> None:
    answers = run(DEADLOCK, DATABASE_URL=mariadb.create("sql_deadlock"))
    assert sorted(answers) == [1, 2]  # the server chose one victim, and it came through


LOST = """
from django.db import connection
from gateway.models import SgipMo
from msgplatform.core.data import transactions
with connection.cursor() as cursor:
    cursor.execute("SELECT CONNECTION_ID()")
    say(cursor.fetchone()[0])
wait()

def work():
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        return cursor.fetchone()[0]

say(transactions.retrying(work))
"""


def test_a_lost_connection_is_made_again(mariadb: MariaDb) -> None:
    with child(LOST, DATABASE_URL=mariadb.create("sql_lost")) as process:
        before = process.heard()
        process.ready()
        mariadb.execute(f"KILL CONNECTION {before}")
        process.go()
        assert process.heard() != before
        assert process.ended() == 0
