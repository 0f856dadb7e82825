"""One person's data: who the person is (`identity`), and the places that hold data of people
(`stores`). Each flow lists its stores in `Flow.person_stores`; `company/person_data` finds, exports
and erases over all of them."""
