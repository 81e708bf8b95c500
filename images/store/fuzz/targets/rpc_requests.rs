//! Requests of the client protocol: every decoder on any bytes. What can be read is written back as the same bytes (those
//! that it looked at), and read again as the same.
#![no_main]

use fuzz::bounded_target;
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

macro_rules! multi_round_trip {
    ($data:expr, $($request:ident),* $(,)?) => {$(
        if let Ok(request) = rpc::$request::decode($data) {
            let parts: Vec<_> = request.parts().collect();
            assert_eq!(parts.len(), request.count() as usize);
            let mut written = Vec::new();
            rpc::$request::encode_parts(&parts, &mut written);
            let again = rpc::$request::decode(&written).expect("what was written can be read");
            // Compared as bytes: a NaN does not equal itself.
            let mut rewritten = Vec::new();
            again.encode(&mut rewritten);
            assert_eq!(written, rewritten, stringify!($request));
        }
    )*};
}

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    let _ = rpc::header(data);
    let _ = rpc::MultiKind::of_request(data);
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
        EnumerateRequest,
        EchoRequest,
        FillWithTestDataRequest,
        GetServerListRequest,
        GetLeaseInfoRequest,
        SplitTabletRequest,
        MigrateTabletRequest,
        HintServerCrashedRequest,
        SetRuntimeOptionRequest,
        GetRuntimeOptionRequest,
        ProxyPingRequest,
        ServerControlRequest,
    );
    if let Ok(request) = rpc::IncrementRequest::decode(data) {
        let mut written = Vec::new();
        request.encode(&mut written);
        let again = rpc::IncrementRequest::decode(&written).expect("what was written can be read");
        let mut rewritten = Vec::new();
        again.encode(&mut rewritten);
        assert_eq!(written, rewritten);
    }
    multi_round_trip!(
        data,
        MultiReadRequest,
        MultiWriteRequest,
        MultiRemoveRequest,
        MultiIncrementRequest,
    );
});
