"""Messages of Notify for search, list, page and API. `index` declares the search, by `fields`.
`lines` makes the lines of lists, `records` the answers of the API. `page` is the page of one
message, with a card for each delivery (`recipients`) and its reasons (`explanations`)."""
