"""Tools: what a model may ask for, described and checked at the definition.

Above `schedule` and the values, below the dispatcher, which alone enters a tool's function.

    tool        `@tool`, `Tool`: the described function
    functions   functions as they are
    signature   what a signature and a docstring say, and how its arguments are validated
    computed    parameters that the host fills, and those that nobody is shown
    schema      JSON Schemas: made, read, walked along a value
    arguments   from the text of a call to validated values
    own_schema  the same for tools that bring their own schema
    output      the type of a run's output, shown to the model and read back
    call        what the function sees of the call
    question    what it asks for while it runs, and what answers that
    toolset     where tools come from
    derived     copies that are wrapped, renamed or filtered
"""

from remit.tools.arguments import Arguments, BadArguments, near_matches
from remit.tools.call import Call
from remit.tools.computed import Computed, ComputedParameter, Secret
from remit.tools.options import Effect
from remit.tools.tool import Reconciler, Tool, tool
from remit.tools.toolset import StaticTools, Tools, Toolset, flattened, resolve

__all__ = [
    "Arguments",
    "BadArguments",
    "Call",
    "Computed",
    "ComputedParameter",
    "Effect",
    "Reconciler",
    "Secret",
    "StaticTools",
    "Tool",
    "Tools",
    "Toolset",
    "flattened",
    "near_matches",
    "resolve",
    "tool",
]
