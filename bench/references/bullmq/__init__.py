"""BullMQ: the job queue that is most used with Node.js and Redis, as programs of Node."""
