"""How many parameters a model has, and where they sit."""

from dataclasses import dataclass

from falsim.catalog.entries import Model


@dataclass(frozen=True)
class ParameterSplit:
    """The parameters of a model by where they sit; those of a block are counted for one block."""

    num_layers: int
    token_embedding: int
    position_embedding: int
    embedding_norm: int
    attention: int
    """Query, key, value and output projections of one block, with their biases."""
    mlp: int
    """The MLP of one block; with experts, all of them together."""
    router: int
    norms: int
    final_norm: int
    head: int
    """The output projection and its bias; a head tied to the embedding has no parameters of its own."""

    @property
    def block(self) -> int:
        """Parameters of one block."""
        return self.attention + self.mlp + self.router + self.norms

    @property
    def embedding(self) -> int:
        """Everything in front of the first block."""
        return self.token_embedding + self.position_embedding + self.embedding_norm

    @property
    def total(self) -> int:
        """Parameters of the whole model."""
        return self.embedding + self.num_layers * self.block + self.final_norm + self.head


def parameter_count(model: Model) -> int:
    """Parameters of the whole model, a tied head counted once."""
    return parameter_split(model).total


def parameter_split(model: Model) -> ParameterSplit:
    """Count the parameters of each part of the family's own block (a serial rewriting may add a norm)."""
    hidden = model.hidden_size
    norm = hidden * (2 if model.norm == "layernorm" else 1)
    positions = model.max_position_embeddings + model.extra_position_rows
    tied = model.tie_word_embeddings
    return ParameterSplit(
        num_layers=model.num_layers,
        token_embedding=model.vocab_size * hidden,
        position_embedding=positions * hidden if model.position_embedding == "learned" else 0,
        embedding_norm=norm if model.embedding_norm else 0,
        attention=_attention(model),
        mlp=model.num_experts * _mlp(model),
        router=model.num_experts * hidden if model.num_experts > 1 else 0,
        norms=model.norms_per_block * norm,
        final_norm=norm,
        head=(0 if tied else model.vocab_size * hidden) + (model.vocab_size if model.lm_head_bias else 0),
    )


def _attention(model: Model) -> int:
    query = model.num_attention_heads * model.head_dim
    key_value = 2 * model.num_key_value_heads * model.head_dim
    weights = model.hidden_size * (query + key_value) + query * model.hidden_size
    biases = (query + key_value if model.attention_bias else 0) + (
        model.hidden_size if model.attention_output_bias else 0
    )
    return weights + biases


def _mlp(model: Model) -> int:
    """One MLP or one expert."""
    up_projections = 2 if model.gated else 1
    weights = (up_projections + 1) * model.hidden_size * model.intermediate_size
    biases = up_projections * model.intermediate_size + model.hidden_size if model.mlp_bias else 0
    return weights + biases
