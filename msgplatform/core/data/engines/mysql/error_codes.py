"""The meaning of the error numbers of MySQL and MariaDB.

mysqlclient raises OperationalError for each number without a class, also for refused values: only
the number says whether a server is away. The numbers are in MariaDB's "Error Codes" and in MySQL's
"Server Error Message Reference".
"""

import re

from django.db import DataError, IntegrityError

from msgplatform.core.data.engines.contract import Fault

LOCK_WAIT_TIMEOUT, DEADLOCK, SERVER_GONE, CONNECTION_LOST = 1205, 1213, 2006, 2013
# MySQL's own numbers: for NOWAIT (MariaDB: LOCK_WAIT_TIMEOUT), and for a statement that the server
# did not read, because it had closed the idle connection and rolled back its transaction.
NOT_AT_ONCE, WAS_IDLE = 3572, 4031
# A Galera node without a quorum refuses every statement that reads a table. The node may have lost
# the quorum during COMMIT.
NO_QUORUM, ERROR_DURING_COMMIT = 1047, 1180
# The connection broke. After a break during COMMIT the transaction may be stored or not.
LOST = frozenset({SERVER_GONE, CONNECTION_LOST, WAS_IDLE})
REPEATABLE = LOST | {LOCK_WAIT_TIMEOUT, DEADLOCK}
MAY_BE_OF_COMMIT = LOST - {WAS_IDLE} | {NO_QUORUM, ERROR_DURING_COMMIT}
# The disk has no room for a temporary table or the table itself: the statement did nothing.
_DISK_FULL = frozenset({1021, 1114})
# The server is absent, stops, has no free connection, is read only, or ended the statement: any
# statement may fail, and may succeed later. A full disk is different, because a person has to make
# room.
AWAY = REPEATABLE | {
    *(1040, 1053, 1203, 1290, 1317, 1836, 1927, 1969, 2002, 2003, 2005, 3024, 3032, NOT_AT_ONCE),
    *(NO_QUORUM, ERROR_DURING_COMMIT),
}
# InnoDB changes nothing in READ COMMITTED while the binary log keeps statements.
_LOG_OF_STATEMENTS = 1665
# Nothing of the transaction is stored after these errors: too many connections, no connection, no
# privilege, lock timeout, deadlock, read only, a trigger whose user does not exist, no room. Any
# other error may have come during COMMIT.
NOTHING_HAPPENED = _DISK_FULL | {
    _LOG_OF_STATEMENTS,
    *(1040, 1044, 1045, 1049, 1142, 1143, 1205, 1213, 1290, 1449, 2002, 2003, 2005),
    *(NOT_AT_ONCE, WAS_IDLE),
}

OF_CLIENT = range(2000, 2100)  # most of them while connecting
# The server's library could not use a file or memory, as on a disk without room for a temporary
# file (3, 20). mysqlclient raises InternalError.
OF_FILES = range(1, 1000)
# The server's state or settings are to blame: every value would fail, and a person may have to act.
OF_SERVER = (
    AWAY | _DISK_FULL | frozenset(OF_CLIENT) | frozenset(OF_FILES) | {
        # files, memory, threads, temporary tables
        *(1004, 1005, 1015, 1016, 1017, 1018, 1023, 1024, 1026, 1030, 1034, 1035, 1037, 1038, 1041),
        *(1135, 1194, 1195, 1206, 1296, 1297, 1637, 1712, 1878, 1932, 3170),
        # connecting, accounts, privileges, limits of a user
        *(1042, 1043, 1044, 1045, 1049, 1129, 1130, 1142, 1143, 1158, 1159, 1160, 1161, 1184, 1218),
        *(1226, 1227, 1251, 1370, 1449, 1698, 1820, 1862, 3118, 3159, 3168, 3169, 4151),
        # read only, locks of others, a change of the table or of the cluster meanwhile
        *(1020, 1036, 1099, 1100, 1207, 1223, 1412, 1614, 1615, 1684, 1689, 1792, 3100, 3101),
        _LOG_OF_STATEMENTS,
    }
)  # fmt: skip
OF_LOCKS = frozenset({LOCK_WAIT_TIMEOUT, DEADLOCK, NOT_AT_ONCE, 1020, 1614, 1689})
# A value is to blame: this statement fails each time, and other rows succeed.
OF_VALUES = frozenset({
    # characters, collations, lengths
    *(1118, 1153, 1162, 1267, 1270, 1271, 1300, 1301, 1366, 1406, 3854, 3988),
    # numbers, dates, other types
    *(1264, 1265, 1292, 1365, 1367, 1411, 1416, 1425, 1426, 1427, 1441, 1525, 1526, 1690, 1713),
    *(3751, 4078, 4079),
    # patterns and JSON
    *(1139, *range(3140, 3159), *range(3685, 3700), *range(4036, 4045)),
    # the refusal of a trigger
    1644,
})  # fmt: skip

_FAULTS: dict[Fault, frozenset[int]] = {
    Fault.REFUSED: frozenset(
        {1044, 1045, 1130, 1142, 1143, 1227, 1251, 1419, 1698, 1820, 1862, 2059, 4151}
    ),
    Fault.NO_DATABASE: frozenset({1049}),
    Fault.NO_TABLE: frozenset({1051, 1146}),
    Fault.NO_COLUMN: frozenset({1054}),
    Fault.LOG_FORMAT: frozenset({_LOG_OF_STATEMENTS}),
    # Cannot connect, unknown host, too many connections.
    Fault.UNREACHABLE: frozenset({2002, 2003, 2005, 2026, 1040, 1129, 1203}),
    Fault.LOST: LOST | {2055},
    Fault.LATER: frozenset(
        {1021, 1053, 1114, LOCK_WAIT_TIMEOUT, DEADLOCK, 1226, 1290, 1317, 1836, 1927, 1969, 3024,
         NOT_AT_ONCE}
    ) | frozenset(OF_FILES),
    Fault.OUT_OF_RANGE: frozenset({1264}),
    Fault.VALUE: OF_VALUES - {1264} | {
        *(1048, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1586, 3819, 4025)
    },
}  # fmt: skip
# Without a cluster's limit for one transaction: a smaller transaction may succeed.
_LATER = dict.fromkeys(OF_SERVER - {ERROR_DURING_COMMIT, 3100, 3101}, Fault.LATER)
_FAULT_BY_CODE = _LATER | {code: fault for fault, codes in _FAULTS.items() for code in codes}
_COLUMN = re.compile(r"[Cc]olumn (?:`[^`]*`\.`[^`]*`\.)?[`']([^`']+)[`']|Field '([^']+)'")


def fault(code: int, error: BaseException) -> Fault:
    other = Fault.VALUE if isinstance(error, DataError | IntegrityError) else Fault.OTHER
    return _FAULT_BY_CODE.get(code, other)


def column(text: str) -> str:
    """The column that the text of an error names, or ''."""
    names = [quoted_name or field for quoted_name, field in _COLUMN.findall(text)]
    return names[-1] if names else ""  # an earlier match may be a value
