import pytest

from tests.support import sources

connections_of_sources = pytest.fixture(autouse=True)(sources.connections_of_sources)
foreign = pytest.fixture(sources.foreign)
