"""Result files of other tools as sources to compare with; one module a tool."""
