"""Which operations may run while programs of the neighbouring release work, and what is written
instead."""

from typing import Any

import pytest
from django.db import migrations, models
from django.db.migrations.state import ProjectState

from msgplatform.core.data import migration_stages

START = [
    migrations.CreateModel(
        "Order",
        [
            ("id", models.BigAutoField(primary_key=True)),
            ("name", models.CharField(max_length=10)),
            ("note", models.CharField(max_length=10, null=True)),
            ("text", models.CharField(max_length=64)),
        ],
    )
]


class Fill(migrations.RunPython):
    is_safe_before = True


def faults(*operations: Any, stage: str = "before") -> list[str]:
    state = ProjectState()
    for operation in START:
        operation.state_forwards("shop", state)
    attributes = {"operations": list(operations), "stage": stage}
    migration = type("Migration", (migrations.Migration,), attributes)("0002_next", "shop")
    return list(migration_stages.faults_of(migration, state))


def nothing(apps: Any, schema_editor: Any) -> None: ...


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("order", "size", models.IntegerField(null=True)),
        migrations.AddField("order", "size", models.IntegerField(db_default=0)),
        migrations.AddField(
            "order", "other",
            models.ForeignKey("shop.order", models.DO_NOTHING, null=True, db_constraint=False),
        ),
        migrations.AddIndex("order", models.Index(fields=["name"], name="by_name")),
        migrations.CreateModel("Item", [("id", models.BigAutoField(primary_key=True))]),
        migrations.AlterField("order", "name", models.CharField(max_length=63)),
        migrations.AlterField("order", "text", models.CharField(max_length=200)),
        migrations.AlterField("order", "name", models.CharField(max_length=10, null=True)),
        migrations.AlterField("order", "name", models.CharField(max_length=10, help_text="a")),
        migrations.SeparateDatabaseAndState([], [migrations.RemoveField("order", "note")]),
        Fill(nothing),
    ],
)  # fmt: skip
def test_what_only_adds_runs_before(operation: Any) -> None:
    assert faults(operation) == []


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (migrations.AddField("order", "size", models.IntegerField(default=0)), "db_default"),
        (
            migrations.AddField(
                "order", "other", models.ForeignKey("shop.order", models.DO_NOTHING, null=True)
            ),
            "db_constraint=False",
        ),
        (migrations.RemoveField("order", "note"), 'stage = "after"'),
        (migrations.DeleteModel("order"), 'stage = "after"'),
        (migrations.RenameField("order", "name", "title"), "a release later"),
        (migrations.RenameModel("order", "Bill"), "a release later"),
        (migrations.AlterField("order", "name", models.CharField(max_length=5)), "after"),
        (migrations.AlterField("order", "name", models.CharField(max_length=64)), "new column"),
        (migrations.AlterField("order", "note", models.CharField(max_length=10)), "after"),
        (migrations.AlterField("order", "name", models.TextField()), "after"),
        (
            migrations.AddConstraint(
                "order", models.UniqueConstraint(fields=["name"], name="one_name")
            ),
            "after",
        ),
        (migrations.RunPython(nothing), "is_safe_before"),
        (migrations.RunSQL("SELECT 1"), "is_safe_before"),
        (
            migrations.SeparateDatabaseAndState([migrations.RemoveField("order", "note")]),
            "after",
        ),
    ],
)
def test_an_unsafe_operation_is_named_with_what_to_write_instead(
    operation: Any, words: str
) -> None:
    (text,) = faults(operation)
    assert text.startswith("shop.0002_next: ")
    assert words in text


def test_a_column_that_new_programs_do_not_fill_must_not_refuse_their_rows() -> None:
    assert faults(migrations.RemoveField("order", "note"), stage="after") == []
    (text,) = faults(migrations.RemoveField("order", "name"), stage="after")
    assert "null=True or db_default" in text
    (text,) = faults(migrations.CreateModel("Item", []), stage="after")
    assert "that runs before" in text


def test_the_migrations_of_the_platform_are_safe_and_their_lock_is_up_to_date() -> None:
    assert list(migration_stages.faults()) == []
