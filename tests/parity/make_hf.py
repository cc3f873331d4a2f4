#!/usr/bin/env python3
"""Writes tiny random models of Hugging Face's transformers, each a folder, with inputs and what transformers computes of them.

Needs torch, transformers (5) and safetensors; the test needs none of them. Beside a model's own files each folder holds
expected.safetensors: "input" (tokens, or images [B, H, W, C], as fp32) and "logits", computed in fp32; of texts with a label also "lengths" [B].

    python3 tests/parity/make_hf.py tests/parity/hf                 the few that the repository keeps
    python3 tests/parity/make_hf.py OUT --all                       every case
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

transformers.logging.set_verbosity_error()

LLAMA = dict(vocab_size=29, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=24)
SMALL = dict(LLAMA, hidden_size=8, intermediate_size=12)  # of the cases that came later: the repository stays small
LLAMA3_ROPE = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=8)
BERT = dict(vocab_size=29, hidden_size=16, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=24, pad_token_id=None)
ROBERTA = dict(BERT, pad_token_id=1, bos_token_id=None, eos_token_id=None)
DISTIL = dict(vocab_size=29, dim=16, hidden_dim=64, n_layers=2, n_heads=4, max_position_embeddings=24, pad_token_id=None)
NEOX = dict(vocab_size=29, hidden_size=32, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=24,
            bos_token_id=None, eos_token_id=None)
VIT = dict(hidden_size=16, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=8, patch_size=4,
           num_channels=3, num_labels=5)
RESNET = dict(num_channels=3, embedding_size=2, num_labels=5)


def rope(theta, **scaling):
    return dict(rope_parameters=dict(rope_theta=theta, **(scaling or dict(rope_type="default"))))


# name: class, configuration, and where the repository keeps it the type of its weights there
CASES = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", dict(vocab_size=29, n_positions=24, n_embd=16, n_layer=2, n_head=4), "bfloat16"),
    "llama": ("LlamaForCausalLM", "LlamaConfig", dict(LLAMA, **rope(10000.0)), None),
    "llama_tied": ("LlamaForCausalLM", "LlamaConfig", dict(LLAMA, tie_word_embeddings=True, **rope(10000.0)), None),
    "llama3": ("LlamaForCausalLM", "LlamaConfig", dict(LLAMA, **rope(500000.0, **LLAMA3_ROPE)), "bfloat16"),
    "llama_linear": ("LlamaForCausalLM", "LlamaConfig", dict(LLAMA, head_dim=8, **rope(1000.0, rope_type="linear", factor=2.0)),
                     None),
    "mistral": ("MistralForCausalLM", "MistralConfig", dict(LLAMA, sliding_window=5, **rope(10000.0)), "float32"),
    "mistral_full": ("MistralForCausalLM", "MistralConfig", dict(LLAMA, sliding_window=None, **rope(10000.0)), None),
    "mistral_heads": ("MistralForCausalLM", "MistralConfig",
                      dict(LLAMA, num_attention_heads=3, num_key_value_heads=1, head_dim=6, sliding_window=None, **rope(10000.0)), "bfloat16"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", dict(LLAMA, tie_word_embeddings=True, **rope(1000000.0)), "bfloat16"),
    "qwen2_window": ("Qwen2ForCausalLM", "Qwen2Config",
                     dict(LLAMA, use_sliding_window=True, sliding_window=4, max_window_layers=0, **rope(10000.0)), None),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(LLAMA, head_dim=6, **rope(1000000.0)), "bfloat16"),
    "llama_biases": ("LlamaForCausalLM", "LlamaConfig", dict(LLAMA, attention_bias=True, mlp_bias=True, **rope(10000.0)), None),
    "qwen2_upper": ("Qwen2ForCausalLM", "Qwen2Config",
                    dict(LLAMA, num_hidden_layers=3, use_sliding_window=True, sliding_window=4, max_window_layers=1, **rope(10000.0)), None),
    "qwen3_biases": ("Qwen3ForCausalLM", "Qwen3Config", dict(LLAMA, head_dim=6, attention_bias=True, **rope(1000000.0)), None),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config",
              dict(SMALL, rms_norm_eps=1e-5, pad_token_id=None, bos_token_id=None, eos_token_id=None, **rope(500000.0)), "bfloat16"),
    "olmo2_full": ("Olmo2ForCausalLM", "Olmo2Config", dict(LLAMA, num_key_value_heads=4, attention_bias=True, tie_word_embeddings=True, pad_token_id=None, eos_token_id=None,
                        **rope(10000.0)), None),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config",
                dict(SMALL, num_hidden_layers=5, pad_token_id=None, bos_token_id=None, eos_token_id=None, **rope(2000000.0)), "bfloat16"),
    "smollm3_window": ("SmolLM3ForCausalLM", "SmolLM3Config",
                       dict(LLAMA, num_hidden_layers=4, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=5, attention_bias=True,
                            mlp_bias=True, tie_word_embeddings=False, pad_token_id=None, bos_token_id=None, eos_token_id=None,
                            layer_types=["full_attention"] * 2 + ["sliding_attention"] * 2, **rope(10000.0)), None),
    "phi3": ("Phi3ForCausalLM", "Phi3Config",
             dict(SMALL, sliding_window=5, pad_token_id=None, bos_token_id=None, eos_token_id=None, **rope(10000.0)), "bfloat16"),
    "phi3_full": ("Phi3ForCausalLM", "Phi3Config",
                  dict(LLAMA, num_key_value_heads=4, tie_word_embeddings=True, pad_token_id=None, bos_token_id=None, eos_token_id=None,
                       **rope(250000.0)), None),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig",
               dict(SMALL, num_hidden_layers=4, head_dim=6, query_pre_attn_scalar=8, sliding_window=5, sliding_window_pattern=3, pad_token_id=None,
                    bos_token_id=None, eos_token_id=None), "bfloat16"),
    "gemma3_scaled": ("Gemma3ForCausalLM", "Gemma3TextConfig",
                      dict(LLAMA, num_hidden_layers=3, head_dim=8, query_pre_attn_scalar=8, sliding_window=4, attention_bias=True,
                           tie_word_embeddings=False, layer_types=["sliding_attention", "full_attention", "sliding_attention"], pad_token_id=None,
                           bos_token_id=None, eos_token_id=None,
                           rope_parameters=dict(full_attention=dict(rope_type="linear", factor=4.0, rope_theta=1e5),
                                                sliding_attention=dict(rope_type="default", rope_theta=1e3))), None),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config",
               dict(SMALL, num_hidden_layers=3, head_dim=6, query_pre_attn_scalar=8, sliding_window=5, attn_logit_softcapping=2.0,
                    final_logit_softcapping=3.0, pad_token_id=None, bos_token_id=None, eos_token_id=None, **rope(10000.0)), "bfloat16"),
    "gemma2_full": ("Gemma2ForCausalLM", "Gemma2Config",
                    dict(LLAMA, head_dim=8, query_pre_attn_scalar=16, sliding_window=4, attn_logit_softcapping=None, attention_bias=True,
                         final_logit_softcapping=1.5, tie_word_embeddings=False, pad_token_id=None, bos_token_id=None, eos_token_id=None,
                         **rope(1000.0, rope_type="linear", factor=2.0)), None),
    "neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig",
             dict(NEOX, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)), "bfloat16"),
    "neox_sequential": ("GPTNeoXForCausalLM", "GPTNeoXConfig",
                        dict(NEOX, num_attention_heads=2, hidden_size=24, use_parallel_residual=False, attention_bias=False, hidden_act="gelu_new",
                             tie_word_embeddings=True, layer_norm_eps=1e-3,
                             rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500.0, partial_rotary_factor=1 / 3)), None),
    "neox_yarn": ("GPTNeoXForCausalLM", "GPTNeoXConfig",
                  dict(NEOX, rope_parameters=dict(rope_type="yarn", rope_theta=50.0, factor=4.0, original_max_position_embeddings=16,
                                                  partial_rotary_factor=0.5)), None),
    "phi3_short": ("Phi3ForCausalLM", "Phi3Config",
                   dict(LLAMA, max_position_embeddings=64, original_max_position_embeddings=32, sliding_window=None, pad_token_id=None,
                        bos_token_id=None, eos_token_id=None,
                        rope_parameters=dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.5], long_factor=[1.2, 4.0])), None),
    "phi3_partial": ("Phi3ForCausalLM", "Phi3Config",
                     dict(LLAMA, hidden_size=32, max_position_embeddings=64, original_max_position_embeddings=8, tie_word_embeddings=True,
                          sliding_window=None, pad_token_id=None, bos_token_id=None, eos_token_id=None,
                          rope_parameters=dict(rope_type="longrope", rope_theta=100.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.3],
                                               long_factor=[1.2, 2.0, 5.0])), None),
    "qwen3_yarn": ("Qwen3ForCausalLM", "Qwen3Config",
                   dict(LLAMA, head_dim=8, max_position_embeddings=64,
                        rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16)), None),
    "llama_yarn": ("LlamaForCausalLM", "LlamaConfig",
                   dict(LLAMA, max_position_embeddings=64,
                        rope_parameters=dict(rope_type="yarn", rope_theta=50.0, factor=2.0, original_max_position_embeddings=32, beta_fast=4.0,
                                             beta_slow=0.5, truncate=False, attention_factor=1.3)), None),
    "bert": ("BertForMaskedLM", "BertConfig", BERT, "float16"),
    "bert_tanh": ("BertForMaskedLM", "BertConfig", dict(BERT, hidden_act="gelu_pytorch_tanh", type_vocab_size=1), None),
    "bert_label": ("BertForSequenceClassification", "BertConfig", dict(BERT, num_labels=3), "float16"),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", DISTIL, "float16"),
    "distilbert_label": ("DistilBertForSequenceClassification", "DistilBertConfig", dict(DISTIL, activation="gelu_new", num_labels=3), None),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", ROBERTA, "float16"),
    "roberta_label": ("RobertaForSequenceClassification", "RobertaConfig",
                      dict(ROBERTA, num_labels=3, type_vocab_size=1, layer_norm_eps=1e-5, max_position_embeddings=18), None),
    "vit": ("ViTForImageClassification", "ViTConfig", VIT, "bfloat16"),
    "vit_eps": ("ViTForImageClassification", "ViTConfig", dict(VIT, layer_norm_eps=1e-6, hidden_act="gelu_pytorch_tanh"),
                None),
    "resnet": ("ResNetForImageClassification", "ResNetConfig",
               dict(RESNET, hidden_sizes=[2, 4, 8, 16], depths=[2, 2, 2, 2], layer_type="basic"), "float16"),
    "resnet_bottleneck": ("ResNetForImageClassification", "ResNetConfig",
                          dict(RESNET, hidden_sizes=[8, 16, 32, 64], depths=[3, 4, 6, 3], layer_type="bottleneck"), None),
}


def spelled_as_before(path):
    """config.json as transformers 4 writes it."""
    config = json.loads(path.read_text())
    config["torch_dtype"] = config.pop("dtype")
    parameters = config.pop("rope_parameters", None)
    if parameters and "full_attention" in parameters:
        config["rope_theta"] = parameters["full_attention"].pop("rope_theta")
        config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        config["rope_scaling"] = parameters["full_attention"] if parameters["full_attention"]["rope_type"] != "default" else None
    elif parameters:
        neox = config["model_type"] == "gpt_neox"
        config["rotary_emb_base" if neox else "rope_theta"] = parameters.pop("rope_theta")
        part = parameters.pop("partial_rotary_factor", None)
        if part is not None:
            config["rotary_pct" if neox else "partial_rotary_factor"] = part
        config["rope_scaling"] = parameters if parameters["rope_type"] != "default" else None
    if config["model_type"] not in ("smollm3", "gemma3_text"):  # whose windows transformers 4 wrote
        config.pop("layer_types", None)
    path.write_text(json.dumps(config, indent=2))


def make(folder, model_class, config_class, options, dtype, old):
    torch.manual_seed(3)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**options)).eval()
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if tensor.dtype != torch.float32 or "inv_freq" in name:
                continue
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif tensor.dim() == 1:
                tensor.normal_(1 if name.endswith("weight") else 0, 0.2)
            else:
                tensor.normal_(0, 0.2)
        model.to(dtype).save_pretrained(folder)
        model = getattr(transformers, model_class).from_pretrained(folder, dtype=torch.float32).eval()
        if hasattr(model.config, "image_size") or "ResNet" in model_class:
            extent = getattr(model.config, "image_size", 24)
            images = torch.rand(2, extent, extent, 3)
            given, call = images, dict(pixel_values=images.permute(0, 3, 1, 2))
        else:
            tokens = torch.randint(0, 29, (2, 16))
            if "Roberta" in model_class:  # which takes this one for padding, wherever it stands
                tokens[tokens == 1] = 2
            given, call = tokens.float(), dict(input_ids=tokens)
        more = {}
        if "SequenceClassification" in model_class:  # the second text is shorter than the first
            more["lengths"] = torch.tensor([16.0, 11.0])
            call["attention_mask"] = (torch.arange(16) < more["lengths"][:, None]).long()
        logits = model(**call).logits
    if old:
        spelled_as_before(folder / "config.json")
    save_file({"input": given.contiguous(), "logits": logits.contiguous(), **more}, folder / "expected.safetensors")


def main():
    out = pathlib.Path(sys.argv[1])
    everything = "--all" in sys.argv
    for name, (model_class, config_class, options, kept) in CASES.items():
        for old in [False, True]:
            dtype = getattr(torch, kept) if kept and not everything else torch.float32
            if everything or (kept and not old):
                make(out / (name + ("_v4" if old else "")), model_class, config_class, options, dtype, old)


main()
