//! Requests of the client protocol: every decoder on any bytes. What can be read is written back as the same bytes (those
//! that it looked at), and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::rpc;

macro_rules! round_trip {
    ($data:expr, $($request:ident),* $(,)?) => {$(
        if let Ok(request) = rpc::$request::decode($data) {
            let mut written = Vec::new();
            request.encode(&mut written);
            assert!(written.len() >= rpc::$request::FIXED_BYTES);
            assert_eq!(rpc::$request::decode(&written), Ok(request), stringify!($request));
        }
    )*};
}

fuzz_target!(|data: &[u8]| {
    let _ = rpc::header(data);
    round_trip!(
        data,
        PingRequest,
        CreateTableRequest,
        GetTableIdRequest,
        DropTableRequest,
        GetTableConfigRequest,
        RenewLeaseRequest,
        ServerControlAllRequest,
        ReadRequest,
        WriteRequest,
        RemoveRequest,
    );
    if let Ok(request) = rpc::MultiWriteRequest::decode(data) {
        let parts: Vec<_> = request.parts().collect();
        assert_eq!(parts.len(), request.count() as usize);
        let mut written = Vec::new();
        rpc::MultiWriteRequest::encode_parts(&parts, &mut written);
        let again = rpc::MultiWriteRequest::decode(&written).expect("what was written can be read");
        assert!(again.parts().eq(parts));
    }
});
