NODE_TABLE = "id_node"
