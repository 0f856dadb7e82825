"""The cell of a database: one row, or no row for a platform that is the only cell.

Two programs with different settings of CELL would make the same ids, or deliver the messages of
another cell. So a program compares its CELL with the row before it starts work, and before it takes
an id node.
"""

from django.db import DatabaseError, connections

from msgplatform.core import cells, logging
from msgplatform.core.cells import Cell
from msgplatform.core.data import sql
from msgplatform.core.errors import UNAVAILABLE, Permanent

log = logging.get(__name__)

TABLE = "cell"


class WrongCell(Permanent):
    """The database belongs to another cell than the program."""


def read(using: str = "default") -> Cell:
    """The database's cell."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT number, cells FROM {TABLE} WHERE id = 1")  # noqa: S608
        row = cursor.fetchone()
    return Cell(*row) if row else Cell()


def write(cell: Cell) -> None:
    """Record the database's cell."""
    row = (1, cell.number, cell.count, sql.stored(sql.now()))
    sql.insert_or_update(TABLE, ("id", "number", "cells", "since"), [row])


def check(using: str = "default") -> None:
    """Raises WrongCell with both cells and the way out."""
    own_cell, recorded_cell = cells.own(), read(using)
    if own_cell == recorded_cell:
        return
    own_name, own_setting = _describe(own_cell), _setting(own_cell)
    raise WrongCell(
        f"The database belongs to {_describe(recorded_cell)}, but this program has {own_setting}. "
        f"Set {_setting(recorded_cell)}, or name the database of {own_name} in DATABASE_URL. "
        f"To make this database {own_name}: stop every program that uses it, and run "
        f"manage.py set_cell with {own_setting}."
    )


def check_if_readable() -> bool:
    """True if the database answered, and its cell is this program's. Raises WrongCell."""
    try:
        check()
    except (DatabaseError, *UNAVAILABLE) as error:
        log.warning("cell_not_checked", why=str(error)[:200])
        return False
    finally:
        connections["default"].close()
    return True


def _describe(cell: Cell) -> str:
    return "a platform without cells" if cell.is_only else f"cell {cell}"


def _setting(cell: Cell) -> str:
    return "no CELL" if cell.is_only else f"CELL={cell}"
