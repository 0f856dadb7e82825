"""The demo: the platform with real traffic through every flow (`show`), and the parts of the flows'
scenarios: a business system's program (`script`, by `connection`), the account of what arrived
(`account`), and a consumer that writes down its messages (`sink`). Tests use them, too."""
