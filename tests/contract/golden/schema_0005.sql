BEGIN TRANSACTION;
CREATE TABLE autotune_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT autotune_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "autotune_alembic_version" VALUES('0005');
CREATE TABLE autotune_probes (
	id INTEGER NOT NULL, 
	search_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	batch_size INTEGER NOT NULL, 
	form TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	accumulate INTEGER NOT NULL, 
	budget_bytes BIGINT NOT NULL, 
	launcher TEXT NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	seconds DOUBLE NOT NULL, 
	stdout_tail TEXT NOT NULL, 
	stderr_tail TEXT NOT NULL, 
	cause TEXT, 
	phase TEXT, 
	message TEXT, 
	steps_executed INTEGER NOT NULL, 
	median_step_seconds DOUBLE, 
	samples_per_second DOUBLE, 
	peak_allocated_bytes BIGINT, 
	peak_reserved_bytes BIGINT, 
	peak_device_bytes BIGINT, 
	non_pytorch_bytes BIGINT, 
	failure TEXT, 
	measurement TEXT NOT NULL, settings TEXT DEFAULT '{}' NOT NULL, evaluate_at INTEGER, ranks TEXT DEFAULT '[]' NOT NULL, 
	CONSTRAINT pk_autotune_probes PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_probes_search_id FOREIGN KEY(search_id) REFERENCES autotune_searches (id) ON DELETE CASCADE, 
	CONSTRAINT uq_autotune_probes_search_id_number UNIQUE (search_id, number)
);
INSERT INTO "autotune_probes" VALUES(1,'5ea4c0ffee',1,28,'long','certify','out_of_memory',4,42949672960,'fork','2026-01-31 12:00:00.123456+00:00',7.5,'step 1
','warning: ''quoted'' "text" \ ü
','device_memory','backward','CUDA out of memory.
Tried to allocate 20 MiB',2,0.5,168.0,40802189312,41875931136,42412802048,536870912,'{"cause": "device_memory", "message": "CUDA out of memory.\nTried to allocate 20 MiB", "phase": "backward", "step": 3, "confirm": true, "error_type": "torch.OutOfMemoryError", "signal": "SIGSEGV", "exit_code": -11, "requested_bytes": 20971520, "free_bytes": 1048576, "fragmented": true, "traceback": "  File \"train.py\", line 9\n", "hint": "a smaller batch", "rank": 1}','{"steps_asked": 5, "steps_executed": 2, "steps_skipped": 1, "observed_batch": 28, "worst_batch": "dict(ids: int64[28, 1024])", "candidates": 3, "losses": [10.8, 0.30000000000000004, "inf", "-inf"], "step_seconds": [0.25, 0.5, 0.75], "phases": [{"phase": "forward", "peak_allocated_bytes": 32212254720, "peak_reserved_bytes": 34359738368}, {"phase": "evaluate", "peak_allocated_bytes": 10737418240, "peak_reserved_bytes": null}], "peak_allocated_bytes": 40802189312, "peak_reserved_bytes": 41875931136, "non_pytorch_bytes": 536870912, "peak_device_bytes": 42412802048, "others_bytes": 7, "allocator_cap_bytes": 42144366592, "retries_per_step": [0, 2, 1], "allocated_after_step": [1073741824, 1073741825], "composition": {"parameters_bytes": 1, "buffers_bytes": 2, "gradients_bytes": 3, "optimizer_bytes": 4, "batch_bytes": 5}, "evaluated": true, "evaluated_batch": 6, "evaluated_after": 4, "build_seconds": 1.5, "loop_seconds": 6.5, "worker_seconds": 7.125, "first_step_seconds": 12.5, "recompiles": 2, "graph_breaks": 1, "comparison": {"lost": ["body.0.weight"], "gained": ["head.bias"], "cosine": 0.5, "norm_ratio": 1.25, "loss_difference": 0.125, "buffers": ["norm.running_mean"], "losses": [1.5, null], "reference_losses": [1.25, 1.0], "skipped": 2}, "graphs_kept": 2, "workers_bytes": 6, "micro_batches": 3, "data_set_size": 512}','{"precision": "bf16", "init_scale": 65536.0, "checkpointing": "off", "compile": "off", "activation_budget": 1.0, "optimizer": "default", "memory_format": "default", "attention": "default", "cudnn_benchmark": false, "set_to_none": true, "loader_workers": null, "pin_memory": false, "allocator": "max_split_size_mb:128", "accumulate": 4}',6,'[{"rank": 0, "outcome": null, "phase": "backward", "step": 3, "steps_executed": 0, "peak_allocated_bytes": null, "peak_reserved_bytes": null, "non_pytorch_bytes": null, "peak_device_bytes": null}, {"rank": 1, "outcome": "out_of_memory", "phase": "backward", "step": 3, "steps_executed": 2, "peak_allocated_bytes": 40802189312, "peak_reserved_bytes": 41875931136, "non_pytorch_bytes": 536870912, "peak_device_bytes": 42412802048}]');
INSERT INTO "autotune_probes" VALUES(2,'5ea4c0ffee',2,27,'long','trace','fits',4,42949672960,'fork','2026-01-31 12:00:00.123456+00:00',7.5,'step 1
','warning: ''quoted'' "text" \ ü
',NULL,NULL,NULL,2,0.5,162.0,40802189312,41875931136,42412802048,536870912,NULL,'{"steps_asked": 5, "steps_executed": 2, "steps_skipped": 1, "observed_batch": 28, "worst_batch": "dict(ids: int64[28, 1024])", "candidates": 3, "losses": [10.8, 0.30000000000000004, "inf", "-inf"], "step_seconds": [0.25, 0.5, 0.75], "phases": [{"phase": "forward", "peak_allocated_bytes": 32212254720, "peak_reserved_bytes": 34359738368}, {"phase": "evaluate", "peak_allocated_bytes": 10737418240, "peak_reserved_bytes": null}], "peak_allocated_bytes": 40802189312, "peak_reserved_bytes": 41875931136, "non_pytorch_bytes": 536870912, "peak_device_bytes": 42412802048, "others_bytes": 7, "allocator_cap_bytes": 42144366592, "retries_per_step": [0, 2, 1], "allocated_after_step": [1073741824, 1073741825], "composition": {"parameters_bytes": 1, "buffers_bytes": 2, "gradients_bytes": 3, "optimizer_bytes": 4, "batch_bytes": 5}, "evaluated": true, "evaluated_batch": 6, "evaluated_after": 4, "build_seconds": 1.5, "loop_seconds": 6.5, "worker_seconds": 7.125, "first_step_seconds": 12.5, "recompiles": 2, "graph_breaks": 1, "comparison": {"lost": ["body.0.weight"], "gained": ["head.bias"], "cosine": 0.5, "norm_ratio": 1.25, "loss_difference": 0.125, "buffers": ["norm.running_mean"], "losses": [1.5, null], "reference_losses": [1.25, 1.0], "skipped": 2}, "graphs_kept": 2, "workers_bytes": 6, "micro_batches": 3, "data_set_size": 512}','{"precision": "bf16", "init_scale": 65536.0, "checkpointing": "off", "compile": "off", "activation_budget": 1.0, "optimizer": "default", "memory_format": "default", "attention": "default", "cudnn_benchmark": false, "set_to_none": true, "loader_workers": null, "pin_memory": false, "allocator": "max_split_size_mb:128", "accumulate": 4}',6,'[{"rank": 0, "outcome": null, "phase": "backward", "step": 3, "steps_executed": 0, "peak_allocated_bytes": null, "peak_reserved_bytes": null, "non_pytorch_bytes": null, "peak_device_bytes": null}, {"rank": 1, "outcome": "out_of_memory", "phase": "backward", "step": 3, "steps_executed": 2, "peak_allocated_bytes": 40802189312, "peak_reserved_bytes": 41875931136, "non_pytorch_bytes": 536870912, "peak_device_bytes": 42412802048}]');
CREATE TABLE autotune_searches (
	id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	state TEXT NOT NULL, 
	created VARCHAR(32) NOT NULL, 
	finished VARCHAR(32), 
	owner TEXT NOT NULL, 
	version TEXT NOT NULL, 
	based_on TEXT, 
	message TEXT NOT NULL, 
	workload_ref TEXT NOT NULL, 
	workload_fingerprint TEXT NOT NULL, 
	machine_fingerprint TEXT NOT NULL, 
	device_name TEXT NOT NULL, 
	precision TEXT NOT NULL, 
	allocator TEXT NOT NULL, 
	accumulate INTEGER NOT NULL, 
	budget_bytes BIGINT NOT NULL, 
	max_batch INTEGER, 
	refuted_at INTEGER, 
	recommended_batch INTEGER, 
	limited_by TEXT, 
	"plan" TEXT NOT NULL, 
	workload TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	budget TEXT NOT NULL, 
	answer TEXT, lease_until VARCHAR(32), 
	CONSTRAINT pk_autotune_searches PRIMARY KEY (id)
);
INSERT INTO "autotune_searches" VALUES('5ea4c0ffee','0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef','answered','2026-01-31 12:00:00.123456+00:00','2026-01-31 12:00:12.623456+00:00','host:4711:1738324800.25','0.1.0','0ldsearch','28 runs out of memory','train.py:net','feed','30dbb31287c1e37df86497a8c8c89d474dc123a1cc79b8230eab45a55efd14b1','NVIDIA H200','bf16','expandable_segments:True',4,42949672960,27,28,24,'device_memory','{"source": {"ref": "train.py:net", "pickle_path": "/home/me/live.pkl", "fingerprint": "f00d", "script_args": ["--width", "64"], "directory": "/home/me", "search_path": ["/home/me/lib", "/opt/lib"], "command": ["python", "train.py", "--batch-size", "{batch}"], "templates": [["precision", "--amp {value}"]]}, "settings": {"precision": "bf16", "init_scale": 65536.0, "checkpointing": "off", "compile": "off", "activation_budget": 1.0, "optimizer": "default", "memory_format": "default", "attention": "default", "cudnn_benchmark": false, "set_to_none": true, "loader_workers": null, "pin_memory": false, "allocator": "expandable_segments:True", "accumulate": 4}, "other_allocators": ["max_split_size_mb:128", "garbage_collection_threshold:0.8"], "device": "cuda:1", "memory_limit_bytes": 42949672960, "multiple_of": 8, "start_batch": 16, "max_batch": 4096, "timeout_s": 12.25, "time_budget_s": 3600.5, "device_wait_s": 90.5, "seed": 17, "recommend": false, "space": [{"knob": "precision", "values": ["bf16", "fp16"]}, {"knob": "compile", "values": []}], "objective": "memory", "effective_batch": 96, "world": 8, "ranks": 2, "trials": 3, "eval_batch": 6, "length_bucket": 512}','{"ref": "train.py:net", "fingerprint": "feed", "recognised": [{"what": "model", "found": "make_model", "why": "a function of this name"}, {"what": "loss", "found": "", "why": "none; the model returns one"}], "parameters": 124439808, "trainable_parameters": 124000000, "parameters_bytes": 497759232, "trainable_bytes": 496000000, "optimizer": "AdamW", "batch": "int64 [B, 1024]", "data_set_size": 60000, "evaluates": true, "process_bytes": 8192, "step_imports_bytes": 2048, "varies": true, "loader": {"workers": 2, "pin_memory": true, "drop_last": true}, "sized": false, "traits": {"blocks": "Block", "num_blocks": 12, "own_checkpointing": "timm", "convolutions": true, "attention": true, "batch_norm": true, "batch_norm_in_blocks": true, "dropout": true, "lower_parameters": true, "frozen": true, "optimizer_kinds": ["for-loop", "foreach"], "data_set": true, "varies": true, "tf32_trouble": "none here", "bf16_trouble": "emulated", "fp16_trouble": "no", "compile_trouble": "no compiler", "attention_backends": ["math"], "cpu_cores": 7}, "device_used_bytes": 3221225472, "own": {"precision": "bf16", "init_scale": 65536.0, "checkpointing": "off", "compile": "off", "activation_budget": 1.0, "optimizer": "default", "memory_format": "default", "attention": "default", "cudnn_benchmark": false, "set_to_none": true, "loader_workers": null, "pin_memory": false, "allocator": "expandable_segments:True", "accumulate": 4}, "notes": ["data sampled", "gr\u00f6\u00dfer \u2014 \u5927"], "parts": [["code of train.py", "0123456789abcdef"], ["size of the data set", "fedcba9876543210"]], "buckets": [{"max_length": 512, "longest": 511, "samples": 412, "longer": 9, "batch": "int64 [B, 511]", "data_set_size": 412, "varies": true, "sized": false, "loader": {"workers": 2, "pin_memory": true, "drop_last": true}, "notes": ["characters"]}]}','{"device": "cuda", "device_name": "NVIDIA H200", "device_uuid": "GPU-1234", "device_index": 1, "capacity_bytes": 151397597184, "driver_version": "570.1", "torch_version": "2.13.0", "cuda_version": "13.0", "python_version": "3.11.7", "platform": "Linux-6.1-x86_64", "unified": true, "peers": ["GPU-5678"]}','{"limit_bytes": 42949672960, "source": "--memory-limit", "capacity_bytes": 151397597184, "others_bytes": 3221225472, "headroom_bytes": 268435456, "caller_bytes": 4096}','{"max_batch": 27, "refuted_at": 28, "recommended_batch": 24, "limited_by": "device_memory", "step": 3, "holes": [9, 12], "settings": {"precision": "bf16", "init_scale": 65536.0, "checkpointing": "off", "compile": "off", "activation_budget": 1.0, "optimizer": "default", "memory_format": "default", "attention": "default", "cudnn_benchmark": false, "set_to_none": true, "loader_workers": null, "pin_memory": false, "allocator": "max_split_size_mb:128", "accumulate": 4}, "loading": {"workers": 4, "pin_memory": true, "samples_per_second": 900.5, "training_samples_per_second": 1000.25}, "complete": false, "prediction": {"limit": 26, "recorded_up_to": 9, "allocated_bytes": 40802189312, "reserved_bytes": 41875931136}, "evaluation": {"max_batch": 6, "refuted_at": 7, "limited_by": "host_memory"}}',NULL);
INSERT INTO "autotune_searches" VALUES('0ldsearch','0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef','running','2025-01-31 12:00:00.123456+00:00',NULL,'host:4711:1738324800.25','0.1.0','0ldsearch','28 runs out of memory','train.py:net','feed','30dbb31287c1e37df86497a8c8c89d474dc123a1cc79b8230eab45a55efd14b1','NVIDIA H200','bf16','expandable_segments:True',4,42949672960,NULL,NULL,NULL,NULL,'{"source": {"ref": "train.py:net", "pickle_path": "/home/me/live.pkl", "fingerprint": "f00d", "script_args": ["--width", "64"], "directory": "/home/me", "search_path": ["/home/me/lib", "/opt/lib"], "command": ["python", "train.py", "--batch-size", "{batch}"], "templates": [["precision", "--amp {value}"]]}, "settings": {"precision": "bf16", "init_scale": 65536.0, "checkpointing": "off", "compile": "off", "activation_budget": 1.0, "optimizer": "default", "memory_format": "default", "attention": "default", "cudnn_benchmark": false, "set_to_none": true, "loader_workers": null, "pin_memory": false, "allocator": "expandable_segments:True", "accumulate": 4}, "other_allocators": ["max_split_size_mb:128", "garbage_collection_threshold:0.8"], "device": "cuda:1", "memory_limit_bytes": 42949672960, "multiple_of": 8, "start_batch": 16, "max_batch": 4096, "timeout_s": 12.25, "time_budget_s": 3600.5, "device_wait_s": 90.5, "seed": 17, "recommend": false, "space": [{"knob": "precision", "values": ["bf16", "fp16"]}, {"knob": "compile", "values": []}], "objective": "memory", "effective_batch": 96, "world": 8, "ranks": 2, "trials": 3, "eval_batch": 6, "length_bucket": 512}','{"ref": "train.py:net", "fingerprint": "feed", "recognised": [{"what": "model", "found": "make_model", "why": "a function of this name"}, {"what": "loss", "found": "", "why": "none; the model returns one"}], "parameters": 124439808, "trainable_parameters": 124000000, "parameters_bytes": 497759232, "trainable_bytes": 496000000, "optimizer": "AdamW", "batch": "int64 [B, 1024]", "data_set_size": 60000, "evaluates": true, "process_bytes": 8192, "step_imports_bytes": 2048, "varies": true, "loader": {"workers": 2, "pin_memory": true, "drop_last": true}, "sized": false, "traits": {"blocks": "Block", "num_blocks": 12, "own_checkpointing": "timm", "convolutions": true, "attention": true, "batch_norm": true, "batch_norm_in_blocks": true, "dropout": true, "lower_parameters": true, "frozen": true, "optimizer_kinds": ["for-loop", "foreach"], "data_set": true, "varies": true, "tf32_trouble": "none here", "bf16_trouble": "emulated", "fp16_trouble": "no", "compile_trouble": "no compiler", "attention_backends": ["math"], "cpu_cores": 7}, "device_used_bytes": 3221225472, "own": {"precision": "bf16", "init_scale": 65536.0, "checkpointing": "off", "compile": "off", "activation_budget": 1.0, "optimizer": "default", "memory_format": "default", "attention": "default", "cudnn_benchmark": false, "set_to_none": true, "loader_workers": null, "pin_memory": false, "allocator": "expandable_segments:True", "accumulate": 4}, "notes": ["data sampled", "gr\u00f6\u00dfer \u2014 \u5927"], "parts": [["code of train.py", "0123456789abcdef"], ["size of the data set", "fedcba9876543210"]], "buckets": [{"max_length": 512, "longest": 511, "samples": 412, "longer": 9, "batch": "int64 [B, 511]", "data_set_size": 412, "varies": true, "sized": false, "loader": {"workers": 2, "pin_memory": true, "drop_last": true}, "notes": ["characters"]}]}','{"device": "cuda", "device_name": "NVIDIA H200", "device_uuid": "GPU-1234", "device_index": 1, "capacity_bytes": 151397597184, "driver_version": "570.1", "torch_version": "2.13.0", "cuda_version": "13.0", "python_version": "3.11.7", "platform": "Linux-6.1-x86_64", "unified": true, "peers": ["GPU-5678"]}','{"limit_bytes": 42949672960, "source": "--memory-limit", "capacity_bytes": 151397597184, "others_bytes": 3221225472, "headroom_bytes": 268435456, "caller_bytes": 4096}',NULL,'2025-01-31 12:07:00.123456+00:00');
CREATE TABLE autotune_traces (
	probe_id INTEGER NOT NULL, 
	format INTEGER NOT NULL, 
	num_events INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	CONSTRAINT pk_autotune_traces PRIMARY KEY (probe_id), 
	CONSTRAINT fk_autotune_traces_probe_id FOREIGN KEY(probe_id) REFERENCES autotune_probes (id) ON DELETE CASCADE
);
INSERT INTO "autotune_traces" VALUES(2,1,8,X'789C4D8E490EC3200C45EFE2350B060742AE12B1A00A95504B13011DD4AA77AFA183BA41F8BD6FEB3F60BFE6E42B4C824189F750609A0721194A8B561B6935679C498E23436EB5A354CDC1A7966B46344B345CC2A97E21A1AEE825957C3E34F351B03BC7E3028ECDA24760F1D5FF8D54E8EA730F189A158375AB3151B7DCD8F866E1162B38BABEF9527AEB59B25F6D8586FEC8A542816644DA53741D35A7756E8D18A473CF179CED42D0');
CREATE INDEX ix_autotune_searches_key_created ON autotune_searches ("key", created);
CREATE INDEX ix_autotune_searches_created ON autotune_searches (created);
CREATE INDEX ix_autotune_searches_workload_ref_created ON autotune_searches (workload_ref, created);
CREATE INDEX ix_autotune_searches_state ON autotune_searches (state);
COMMIT;
